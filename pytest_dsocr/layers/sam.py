"""SAM's image encoder (ViT, windowed attention, relative positions) and the two convolutions that shrink it.

Shapes: B views, H x W patches, C channels, N heads, D channels of a head. A 1024 px view gives
``[B, 1024, 16, 16]``, a 640 px crop ``[B, 1024, 10, 10]``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.norms import LayerNorm2d
from pytest_dsocr.layers.sizes import SamConfig


def resize_grid(table_HWC: Tensor, size: int) -> Tensor:
    """Resize a square table ``[H, H, C]`` to ``[size, size, C]``: bicubic, antialiased."""
    if table_HWC.shape[0] == size:
        return table_HWC
    planes = table_HWC.float().permute(2, 0, 1)[None]
    resized = F.interpolate(planes, size=(size, size), mode="bicubic", antialias=True, align_corners=False)
    return resized[0].permute(1, 2, 0).to(table_HWC.dtype)


def resize_line(table_LC: Tensor, length: int) -> Tensor:
    """Resize a table ``[L, C]`` of relative positions to ``[length, C]``: linear, half-pixel centres."""
    if table_LC.shape[0] == length:
        return table_LC
    line = table_LC.float().T[None]
    return F.interpolate(line, size=length, mode="linear")[0].T.to(table_LC.dtype)


def relative_table(table_LC: Tensor, size: int) -> Tensor:
    """Look up every pair of ``size`` positions: ``[size, size, C]``, query first."""
    table = resize_line(table_LC, 2 * size - 1)
    at = torch.arange(size, device=table.device)
    return table[at[:, None] - at[None, :] + size - 1]


class Sam(nn.Module):
    """Pixels ``[B, 3, S, S]`` to features ``[B, C, S/64, S/64]``."""

    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Parameter(torch.empty(1, config.grid, config.grid, config.width))
        self.blocks = nn.ModuleList(SamBlock(config, layer) for layer in range(config.layers))
        neck = config.neck_channels
        self.neck = nn.Sequential(
            nn.Conv2d(config.width, neck, kernel_size=1, bias=False),
            LayerNorm2d(neck, config.layer_norm_eps),
            nn.Conv2d(neck, neck, kernel_size=3, padding=1, bias=False),
            LayerNorm2d(neck, config.layer_norm_eps),
        )
        middle, last = config.downsample_channels
        self.net_2 = nn.Conv2d(neck, middle, kernel_size=3, stride=2, padding=1, bias=False)
        self.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x_BHWC = self.patch_embed(pixels)
        x_BHWC = x_BHWC + resize_grid(self.pos_embed[0], x_BHWC.shape[1])
        for block in self.blocks:
            x_BHWC = block(x_BHWC)
        return self.net_3(self.net_2(self.neck(x_BHWC.permute(0, 3, 1, 2))))


class PatchEmbed(nn.Module):
    """Cut the pixels into patches, one vector each: ``[B, H, W, C]``."""

    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, config.width, kernel_size=config.patch_size, stride=config.patch_size)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.proj(pixels).permute(0, 2, 3, 1)


class SamBlock(nn.Module):
    """A transformer layer; attention stays inside windows except in the global layers."""

    def __init__(self, config: SamConfig, layer: int) -> None:
        super().__init__()
        is_global = layer in config.global_attn_indexes
        self.window = 0 if is_global else config.window_size
        self.norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.attn = SamAttention(config, config.grid if is_global else config.window_size)
        self.norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.mlp = SamMlp(config)

    def forward(self, x_BHWC: Tensor) -> Tensor:
        x_BHWC = x_BHWC + self.attend(self.norm1(x_BHWC))
        return x_BHWC + self.mlp(self.norm2(x_BHWC))

    def attend(self, x_BHWC: Tensor) -> Tensor:
        """Attend inside windows, or over the whole view in a global layer: ``[B, H, W, C]``."""
        if not self.window:
            return self.attn(x_BHWC)
        _, height, width, _ = x_BHWC.shape
        return join_windows(self.attn(split_windows(x_BHWC, self.window)), height, width)


class SamAttention(nn.Module):
    """Multi-head attention with a bias of decomposed relative positions."""

    def __init__(self, config: SamConfig, side: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        head_dim = config.width // config.heads
        self.rel_pos_h = nn.Parameter(torch.empty(2 * side - 1, head_dim))
        self.rel_pos_w = nn.Parameter(torch.empty(2 * side - 1, head_dim))

    def forward(self, x_BHWC: Tensor) -> Tensor:
        batch, height, width, _ = x_BHWC.shape
        qkv = self.qkv(x_BHWC).view(batch, height * width, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, N, H*W, D]
        bias = self.position_bias(q, height, width)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))

    def position_bias(self, q: Tensor, height: int, width: int) -> Tensor:
        """Score of every query with every row and every column offset: ``[B, N, H*W, H*W]``.

        The query is not scaled by the head's size here, as it is in the product with the keys.
        """
        rows = relative_table(self.rel_pos_h, height)
        columns = relative_table(self.rel_pos_w, width)
        q_BHWD = q.reshape(-1, height, width, q.shape[-1])
        by_row = torch.einsum("bhwd,hkd->bhwk", q_BHWD, rows).reshape(*q.shape[:3], height, 1)
        by_column = torch.einsum("bhwd,wkd->bhwk", q_BHWD, columns).reshape(*q.shape[:3], 1, width)
        return (by_row + by_column).flatten(3)


class SamMlp(nn.Module):
    """Two layers with the exact (erf) GELU between them."""

    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        self.lin1 = nn.Linear(config.width, config.mlp_ratio * config.width)
        self.lin2 = nn.Linear(config.mlp_ratio * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.gelu(self.lin1(x)))


def split_windows(x_BHWC: Tensor, window: int) -> Tensor:
    """Cut ``[B, H, W, C]`` into windows ``[B * windows, window, window, C]``, padding with zeros at the end."""
    batch, height, width, channels = x_BHWC.shape
    x = F.pad(x_BHWC, (0, 0, 0, -width % window, 0, -height % window))
    rows, columns = x.shape[1] // window, x.shape[2] // window
    x = x.view(batch, rows, window, columns, window, channels).transpose(2, 3)
    return x.reshape(-1, window, window, channels)


def join_windows(windows: Tensor, height: int, width: int) -> Tensor:
    """Undo :func:`split_windows` for ``height`` x ``width`` patches, dropping the padding."""
    window, channels = windows.shape[1], windows.shape[3]
    rows, columns = -(-height // window), -(-width // window)
    x = windows.view(-1, rows, columns, window, window, channels).transpose(2, 3)
    return x.reshape(-1, rows * window, columns * window, channels)[:, :height, :width]
