"""The engine's own modules, run with gradients on batches; views are cut on the device, and the host waits for nothing.

Shapes: B rows, P crops, V side of the whole view, T tokens, N image tokens, C channels, E experts, H x W patches. In
SAM, N heads and D channels of a head.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ci.training.rows import Batch, order
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import crop_count
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.layers.sam import SamAttention, relative_table
from pytest_dsocr.models.spec import PIXELS

GREY, WHITE = 127, 255
CHANNELS_STEP = 8
"""Fused kernels want a multiple of this many channels."""


class FoldedAttention(SamAttention):
    """SAM's attention with its relative positions inside queries and keys, so that a fused kernel does the rest.

    A query carries its bias for each row and column, and a key has a one at its own. Equal to rounding.
    """

    def forward(self, x_BHWC: Tensor) -> Tensor:
        """Attend over ``[B, H, W, C]``, a view or a window of one."""
        batch, height, width, _ = x_BHWC.shape
        qkv = self.qkv(x_BHWC).view(batch, height * width, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, N, H*W, D]
        q_BNHWD = q.unflatten(2, (height, width))
        by_row = torch.einsum("bnhwd,hkd->bnhwk", q_BNHWD, relative_table(self.rel_pos_h, height)).flatten(2, 3)
        by_column = torch.einsum("bnhwd,wkd->bnhwk", q_BNHWD, relative_table(self.rel_pos_w, width)).flatten(2, 3)
        spare = q.new_zeros(()).expand(*q.shape[:3], -(q.shape[-1] + height + width) % CHANNELS_STEP)
        own = [torch.eye(side, device=q.device, dtype=q.dtype) for side in (height, width)]
        places = torch.cat([own[0].repeat_interleave(width, dim=0), own[1].repeat(height, 1)], dim=1)
        queries = torch.cat([q * q.shape[-1] ** -0.5, by_row, by_column, spare], dim=-1)
        keys = torch.cat([k, places.expand(batch, self.heads, -1, -1), spare], dim=-1)
        values = F.pad(v, (0, keys.shape[-1] - v.shape[-1]))
        out = F.scaled_dot_product_attention(queries, keys, values, scale=1.0)[..., : v.shape[-1]]
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))
        return projected


class DenseExperts(MixtureOfExperts):
    """All experts on all tokens, weighted by the router: equal to running the chosen few, and the host never waits."""

    imbalance: Tensor
    """Imbalance of the last pass: 1 if experts are used alike, E if one is."""

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Mix the experts' outputs, ``[B, T, C]``."""
        tokens_TC = x_BTC.flatten(0, 1)
        chosen, weights = self.gate(tokens_TC)
        experts = [*self._mlps()]
        weights_TE = torch.zeros(len(tokens_TC), len(experts), device=weights.device).scatter(1, chosen, weights)
        gates = F.linear(tokens_TC, torch.cat([expert.gate_proj.weight for expert in experts]))
        ups = F.linear(tokens_TC, torch.cat([expert.up_proj.weight for expert in experts]))
        inner = (F.silu(gates) * ups).unflatten(1, (len(experts), -1)) * weights_TE[..., None].to(gates.dtype)
        routed = F.linear(inner.flatten(1), torch.cat([expert.down_proj.weight for expert in experts], dim=1))
        scores = F.linear(tokens_TC.float(), self.gate.weight.float()).softmax(dim=-1).mean(dim=0)
        used = (weights_TE > 0).float().mean(dim=0) / chosen.shape[1]
        self.imbalance = len(scores) * (scores * used).sum()
        mixed: Tensor = routed.view_as(x_BTC) + self.shared_experts(x_BTC)
        return mixed


def fold(model: EngineModel) -> EngineModel:
    """Exchange SAM's attention and the experts for forms that are fast in training."""
    for module in model.modules():
        if isinstance(module, SamAttention):
            module.__class__ = FoldedAttention
        elif isinstance(module, MixtureOfExperts):
            module.__class__ = DenseExperts
    return model


def views_of(batch: Batch) -> tuple[Tensor, Tensor]:
    """Cut the views of pages that are on the device: pixels ``[B * P, 3, px, px]`` and ``[B, 3, V, V]``."""
    pages, preset, (columns, rows) = batch.pages.permute(0, 3, 1, 2), batch.preset, batch.grid
    wholes, px = _wholes(pages, preset.view_size, preset.is_squashed), preset.tiling.crop_px
    if not crop_count(batch.grid):
        return normalise(wholes[:0]), normalise(wholes)
    stretched = _stretch(pages, columns * px, rows * px)
    tiles = stretched.unflatten(3, (columns, px)).unflatten(2, (rows, px)).permute(0, 2, 4, 1, 3, 5)
    return normalise(tiles.flatten(0, 2)), normalise(wholes)


def _wholes(pages: Tensor, side: int, is_squashed: bool) -> Tensor:
    if is_squashed:
        return _stretch(pages, side, side)
    height, width = pages.shape[2:]
    per_px = side / max(height, width)
    fitted = _stretch(pages, round(width * per_px), round(height * per_px))
    views = pages.new_full((len(pages), 3, side, side), GREY)
    top, left = (round((side - length) / 2) for length in fitted.shape[2:])
    views[:, :, top : top + fitted.shape[2], left : left + fitted.shape[3]] = fitted
    return views


def _stretch(pages: Tensor, width: int, height: int) -> Tensor:
    """Resize levels ``[B, 3, h, w]`` as Pillow does, but for a level or two: bicubic, antialiased, rows first."""
    dtype = torch.float16 if pages.is_cuda else torch.float32
    down, across = (
        resampling(length, to, pages.device).to(dtype)
        for length, to in zip(pages.shape[2:], (height, width), strict=True)
    )
    wide = (pages.to(dtype) @ across.T).round_().clamp_(0, WHITE)
    return (down @ wide).round_().clamp_(0, WHITE).to(torch.uint8)


def resampling(length: int, to: int, device: torch.device) -> Tensor:
    """Return the matrix that resizes a line of pixels, ``[to, length]``: Pillow's cubic filter."""
    scale = length / to
    centres = (torch.arange(to, device=device) + 0.5) * scale
    x = (torch.arange(length, device=device) + 0.5 - centres[:, None]).abs() / max(scale, 1.0)
    near, far = (1.5 * x - 2.5) * x * x + 1, ((2.5 - 0.5 * x) * x - 4) * x + 2
    weights = torch.where(x < 1, near, far.masked_fill(x >= 2, 0.0))
    return weights / weights.sum(dim=1, keepdim=True)


def encode(model: EngineModel, pixels: Tensor) -> Tensor:
    """Run the stages of views ``[P, 3, V, V]``: the decoder's tokens ``[P, n, C]``."""
    view = {PIXELS: pixels.to(model.dtype)}
    for stage in model.family.of_views:
        view[stage.name] = getattr(model, stage.name)(*(view[name] for name in stage.takes))
    return view[model.family.of_views[-1].name]


def arrange(model: EngineModel, batch: Batch, crops: Tensor, wholes: Tensor) -> Tensor:
    """Lay the views' tokens out as the decoder reads them: ``[B, N, C]``."""
    rows, layout = len(batch.blind), model.family.layout
    newline = model.newline if layout.newlines else torch.zeros_like(model.separator)
    parts = [
        *([crops.unflatten(0, (rows, -1)).flatten(1, 2)] if len(crops) else []),
        wholes,
        newline.expand(rows, 1, -1),
        (model.separator * ~batch.blind[:, None])[:, None],
    ]
    preset = batch.preset
    return torch.cat(parts, dim=1)[:, _order(model, preset.view_size, preset.tiling.crop_px, batch.grid)]


@lru_cache(maxsize=64)
def _order(model: EngineModel, view_px: int, crop_px: int, grid: tuple[int, int]) -> Tensor:
    layout = model.family.layout
    return order(layout.newlines, layout.mosaic, view_px, crop_px, grid).to(model.device)


class NoCache(KVCache):
    """The cache of a pass that sees every token at once."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is given."""
        return keys, values


def decode(model: EngineModel, ids: Tensor, vision: Tensor) -> tuple[Tensor, Tensor]:
    """Run the decoder on whole rows ``[B, T]`` with image tokens ``[B, N, C]`` after BOS.

    Returns hidden states ``[B, T, C]``, and the mean imbalance of the routers.
    """
    core, embeds = model.model, model.embed(ids)
    x_BTC = torch.cat([embeds[:, :1], vision.to(embeds.dtype), embeds[:, 1 + vision.shape[1] :]], dim=1)
    hidden = core.decode(x_BTC, NoCache(len(core.layers), rows=len(ids)))
    imbalances = [module.imbalance for module in core.modules() if isinstance(module, DenseExperts)]
    return hidden, torch.stack(imbalances or [hidden.new_ones(())]).mean()
