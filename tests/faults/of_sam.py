"""Mistakes in SAM."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import sam
from pytest_dsocr.engine.sam import Attention, Block, LayerNorm2d, Sam
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import CROPS, core_of, fault, run_instead

GARBAGE, LITTLE = "garbage, or fluent text of another page", "the same text with a wrong word here and there"
LARGER = "a view larger than its tables of positions"


def _blocks(subject: SessionSubject) -> list[Any]:
    return list(core_of(subject).sam_model.blocks)


def resized(table_HWC: Tensor, size: int, **options: Any) -> Tensor:
    """Resize a square table as :func:`sam.resize_grid` does, but for some options."""
    if table_HWC.shape[0] == size:
        return table_HWC
    how: dict[str, Any] = {"mode": "bicubic", "antialias": True, "align_corners": False, **options}
    return F.interpolate(table_HWC.permute(2, 0, 1)[None], size=(size, size), **how)[0].permute(1, 2, 0)


@fault("SAM-01", "Absolute positions resized without antialias", "sam", LITTLE, "bicubic with antialias", CROPS)
def not_antialiased(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """F.interpolate was called without antialias=True."""
    patch.setattr(sam, "resize_grid", lambda table, size: resized(table, size, antialias=False))


@fault("SAM-03", "Absolute positions resized bilinearly", "sam", LITTLE, "bicubic", CROPS)
def bilinear_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The backend has no bicubic kernel."""
    patch.setattr(sam, "resize_grid", lambda table, size: resized(table, size, mode="bilinear"))


@fault("SAM-04", "Relative positions resized with aligned corners", "sam", LITTLE, "half-pixel", CROPS)
def aligned_corners(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The scale is (L - 1) / (N - 1) in place of L / N with half-pixel centres."""

    def resize(table: Tensor, length: int) -> Tensor:
        return F.interpolate(table.T[None], size=length, mode="linear", align_corners=True)[0].T

    patch.setattr(sam, "resize_line", resize)


@fault("SAM-05", "Relative positions resized without half-pixel centres", "sam", LITTLE, "half-pixel", CROPS)
def no_half_pixels(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The places are arange(N) * L / N, with no half added and none taken off."""

    def resize(table: Tensor, length: int) -> Tensor:
        at = torch.arange(length) * (len(table) / length)
        low = at.long()
        high = (low + 1).clamp(max=len(table) - 1)
        return torch.lerp(table[low], table[high], (at - low)[:, None])

    patch.setattr(sam, "resize_line", resize)


@fault("SAM-08", "Relative rows and columns exchanged", "sam", GARBAGE, "rows and columns")
def exchanged_tables(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The two tables have one shape, and were given in the wrong order."""
    for block in _blocks(subject):
        rows, columns = block.attn.rel_pos_h.data, block.attn.rel_pos_w.data
        patch.setattr(block.attn.rel_pos_h, "data", columns)
        patch.setattr(block.attn.rel_pos_w, "data", rows)


@fault("SAM-09", "Relative positions of the scaled query", "sam", GARBAGE, "unscaled query")
def scaled_query(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The query was multiplied by the scale before the bias was made of it."""
    right = Attention._position_bias
    patch.setattr(Attention, "_position_bias", lambda self, q, h, w: right(self, q * q.shape[-1] ** -0.5, h, w))


@fault("SAM-11", "Global blocks off by one", "sam", GARBAGE, "attend globally")
def shifted_global_blocks(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Blocks are counted from 1 here and from 0 there."""
    blocks = _blocks(subject)
    windows = [block.window for block in blocks]
    for block, window in zip(blocks, [windows[0], *windows[:-1]], strict=True):
        patch.setattr(block, "window", window)


@fault("SAM-12", "The neck's norm over rows in place of channels", "sam", GARBAGE, "over channels")
def norm_over_rows(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A norm written for NHWC is used on NCHW."""

    def forward(self: LayerNorm2d, x: Tensor) -> Tensor:
        normal = (x - x.mean(2, keepdim=True)) / torch.sqrt(x.var(2, unbiased=False, keepdim=True) + self.eps)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]

    patch.setattr(LayerNorm2d, "forward", forward)


@fault(
    "SAM-13",
    "Epsilon of 1e-5",
    "sam",
    "nothing, or a near tie that goes the other way",
    "epsilon",
)
def other_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """One epsilon is used for SAM and CLIP."""
    for block in _blocks(subject):
        patch.setattr(block.norm1, "eps", 1e-5)
        patch.setattr(block.norm2, "eps", 1e-5)


@fault("SAM-14", "Neck weights not loaded", "sam", GARBAGE, "neck.*weights")
def neck_not_loaded(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The neck is held in a list, whose modules are not registered."""
    weight = core_of(subject).sam_model.neck[2].weight
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    patch.setattr(weight, "data", 0.02 * noise)


@fault("SAM-15", "The bias of positions cast to half", "sam", LITTLE, "bias's dtype")
def half_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A cast that one kernel needs is made for all."""
    right = Attention._position_bias
    patch.setattr(Attention, "_position_bias", lambda self, q, h, w: right(self, q, h, w).half().float())


@fault("SAM-W1", "GELU by its tanh approximation", "sam", LITTLE, r"GELU \(erf\)")
def tanh_gelu(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The framework's default GELU is the approximate one."""
    forward: Any = lambda self, x: self.lin2(F.gelu(self.lin1(x), approximate="tanh"))  # noqa: E731
    patch.setattr(sam.Mlp, "forward", forward)


@fault("SAM-W2", "Biases of queries, keys and values dropped", "sam", GARBAGE, "bias")
def no_qkv_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The linear layer was built with bias=False, and the loader was not strict."""
    for block in _blocks(subject):
        patch.setattr(block.attn.qkv.bias, "data", torch.zeros_like(block.attn.qkv.bias))


@fault("SAM-W3", "One block's output bias dropped", "sam", LITTLE, r"block \d+, for.*biases")
def one_bias_dropped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The key of one tensor is misspelt in the loader's table."""
    bias = _blocks(subject)[-2].attn.proj.bias
    patch.setattr(bias, "data", torch.zeros_like(bias))


@fault("SAM-W4", "The patches' bias dropped", "sam", LITTLE, "patches.*bias|bias.*patches")
def no_patch_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The patches are a matrix product without its bias."""
    bias = core_of(subject).sam_model.patch_embed.proj.bias
    assert bias is not None
    patch.setattr(bias, "data", torch.zeros_like(bias))


@fault("SAM-W5", "No absolute positions", "sam", GARBAGE, "absolute positions")
def no_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The table was taken for CLIP's and left out."""
    table = core_of(subject).sam_model.pos_embed
    patch.setattr(table, "data", torch.zeros_like(table))


@fault("SAM-W6", "Absolute positions transposed", "sam", GARBAGE, "absolute positions")
def transposed_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The table is read column by column."""
    table = core_of(subject).sam_model.pos_embed
    patch.setattr(table, "data", table.data.transpose(1, 2).contiguous())


@fault("SAM-W7", "Relative offsets with the opposite sign", "sam", GARBAGE, "relative positions")
def negative_offsets(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Key minus query in place of query minus key."""
    right = sam.relative_table
    patch.setattr(sam, "relative_table", lambda table, size: right(table, size).transpose(0, 1))


@fault("SAM-W8", "No relative positions inside windows", "sam", GARBAGE, "relative positions")
def windows_without_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The bias is added in the global blocks only."""
    for block in _blocks(subject):
        if block.window:
            patch.setattr(block.attn.rel_pos_h, "data", torch.zeros_like(block.attn.rel_pos_h))
            patch.setattr(block.attn.rel_pos_w, "data", torch.zeros_like(block.attn.rel_pos_w))


@fault("SAM-W9", "Windows padded with the edge's patches", "sam", LITTLE, "padded.*with zeros")
def padded_by_edge(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The padding repeats the last row and column."""
    right = sam.split_windows

    def split(x_BHWC: Tensor, window: int) -> Tensor:
        _, height, width, _ = x_BHWC.shape
        x = x_BHWC.permute(0, 3, 1, 2)
        return right(F.pad(x, (0, -width % window, 0, -height % window), "replicate").permute(0, 2, 3, 1), window)

    patch.setattr(sam, "split_windows", split)


@fault("SAM-W10", "The last block left out", "sam", GARBAGE, "number of blocks")
def last_block_left_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The features are taken one block early."""
    patch.setattr(_blocks(subject)[-1], "forward", lambda x: x)


@fault("SAM-W11", "An activation between the two convolutions", "sam", GARBAGE, "convolutions")
def activated_convolution(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A GELU stands there in other models."""
    last = core_of(subject).sam_model.net_3
    run_instead(patch, last, lambda x: F.conv2d(F.gelu(x), last.weight, stride=2, padding=1))


@fault("DTP-04", "SAM computed in bfloat16", "sam", LITTLE, "autocast|dtype|round")
def rounded_blocks(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Every block's output is rounded to bfloat16."""
    right = Block.forward
    patch.setattr(Block, "forward", lambda self, x: right(self, x).bfloat16().float())


@fault("SAM-W12", "A residual of the normed input", "sam", GARBAGE, "residual|block 0")
def residual_after_norm(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The norm is in front of the branch and of the residual."""

    def forward(self: Block, x: Tensor) -> Tensor:
        x = self.norm1(x)
        x = x + self._attend(x)
        given: Tensor = x + self.mlp(self.norm2(x))
        return given

    patch.setattr(Block, "forward", forward)


@fault("SAM-W13", "Attention scaled by the whole width", "sam", GARBAGE, "scale")
def scaled_by_width(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The scale is width ** -0.5 in place of the head's."""
    for block in _blocks(subject):
        weight, bias = block.attn.qkv.weight, block.attn.qkv.bias
        keys, factor = slice(len(bias) // 3, 2 * len(bias) // 3), block.attn.heads**-0.5
        wide, narrow = weight.data.clone(), bias.data.clone()
        wide[keys] *= factor
        narrow[keys] *= factor
        patch.setattr(weight, "data", wide)
        patch.setattr(bias, "data", narrow)


@fault("SAM-W14", "Red, green and blue weights reversed", "sam", "wrong colours", "weights", "a page in colour")
def reversed_channels(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The patches' weights were converted for a BGR decoder."""
    weight = core_of(subject).sam_model.patch_embed.proj.weight
    patch.setattr(weight, "data", weight.data.flip(1))


@fault("SAM-W15", "The neck's epsilon of 1e-5", "sam", "nothing", "neck|epsilon")
def neck_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The neck's norms take the framework's default."""
    model: Sam = core_of(subject).sam_model
    for norm in (model.neck[1], model.neck[3]):
        patch.setattr(norm, "eps", 1e-5)


@fault(
    "SAM-W16", "Absolute positions of larger views repeated at the edge", "sam", LITTLE, "absolute positions", LARGER
)
def edge_repeated(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The table is cut or resized for smaller views, and its last row and column stand for all beyond it."""
    right = sam.resize_grid

    def resize(table: Tensor, size: int) -> Tensor:
        at = torch.arange(size).clamp(max=len(table) - 1)
        return table[at][:, at] if size > len(table) else right(table, size)

    patch.setattr(sam, "resize_grid", resize)


@fault(
    "SAM-W17", "Relative positions of larger views clamped", "sam", LITTLE, "relative positions|which blocks", LARGER
)
def relative_clamped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Distances beyond the table take its ends, as in other encoders, where the vendor's resizes it."""
    right = sam.resize_line

    def resize(table: Tensor, length: int) -> Tensor:
        at = torch.arange(length) - length // 2 + len(table) // 2
        return table[at.clamp(0, len(table) - 1)] if length > len(table) else right(table, length)

    patch.setattr(sam, "resize_line", resize)
