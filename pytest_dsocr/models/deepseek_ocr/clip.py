"""CLIP's vision transformer, which takes SAM's features instead of its own patch embeddings.

Shapes: B views, P = h * w positions, C channels, N heads, D channels of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.activations import quick_gelu
from pytest_dsocr.layers.sam import resize_grid
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig


class Clip(nn.Module):
    """SAM's features ``[B, C, h, w]`` to ``[B, 1 + h * w, C]``, the class token first; no final norm."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.transformer = Transformer(config)

    def forward(self, sam_BCHW: Tensor) -> Tensor:
        return self.transformer(self.pre_layrnorm(self.embeddings(sam_BCHW)))


class Embeddings(nn.Module):
    """A class token and SAM's features, with absolute positions added.

    ``patch_embedding`` is in the vendor's checkpoint and is never used: SAM's features take its place.
    """

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.class_embedding = nn.Parameter(torch.empty(config.width))
        self.patch_embedding = nn.Conv2d(
            3, config.width, kernel_size=config.patch_size, stride=config.patch_size, bias=False
        )
        self.position_embedding = nn.Embedding.from_pretrained(torch.empty(config.grid**2 + 1, config.width))

    def forward(self, sam_BCHW: Tensor) -> Tensor:
        batch, width, side, _ = sam_BCHW.shape
        class_token = self.class_embedding.expand(batch, 1, -1)
        tokens = torch.cat([class_token, sam_BCHW.flatten(2).transpose(1, 2)], dim=1)
        of_class, of_grid = self.position_embedding.weight.split([1, len(self.position_embedding.weight) - 1])
        grid = int(len(of_grid) ** 0.5)
        of_grid = resize_grid(of_grid.view(grid, grid, width), side).reshape(-1, width)
        return tokens + torch.cat([of_class, of_grid])


class Transformer(nn.Module):
    """The layers, in order."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ClipLayer(config) for _ in range(config.layers))

    def forward(self, x_BPC: Tensor) -> Tensor:
        for layer in self.layers:
            x_BPC = layer(x_BPC)
        return x_BPC


class ClipLayer(nn.Module):
    """Attention, then a two-layer perceptron, each after a norm and with a residual connection."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.self_attn = ClipAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.mlp = ClipMlp(config)

    def forward(self, x_BPC: Tensor) -> Tensor:
        x_BPC = x_BPC + self.self_attn(self.layer_norm1(x_BPC))
        return x_BPC + self.mlp(self.layer_norm2(x_BPC))


class ClipAttention(nn.Module):
    """Full multi-head attention."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv_proj = nn.Linear(config.width, 3 * config.width)
        self.out_proj = nn.Linear(config.width, config.width)

    def forward(self, x_BPC: Tensor) -> Tensor:
        batch, positions, _ = x_BPC.shape
        qkv = self.qkv_proj(x_BPC).view(batch, positions, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, N, P, D]
        out = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(out.transpose(1, 2).reshape(batch, positions, -1))


class ClipMlp(nn.Module):
    """Two layers with the quick GELU between them."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.width, config.mlp_ratio * config.width)
        self.fc2 = nn.Linear(config.mlp_ratio * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(quick_gelu(self.fc1(x)))
