"""Mistakes in SAM and CLIP, listed before the checks were read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.layers import sam
from pytest_dsocr.models.deepseek_ocr import clip
from pytest_dsocr.models.deepseek_ocr.clip import Clip, Embeddings
from pytest_dsocr.layers.norms import LayerNorm2d
from pytest_dsocr.layers.sam import SamAttention as Attention
from pytest_dsocr.layers.sam import SamBlock as Block
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import CROPS, core_of, encode_at_most, mistake, run_instead

MANY_CROPS = "a page of seven crops or more"
CAPTURED = 6


def _windows(patch: pytest.MonkeyPatch, attend: Any) -> None:
    right = Block.attend
    patch.setattr(Block, "attend", lambda self, x: attend(self, x) if self.window else right(self, x))


@mistake("HLD-27", "Padding inside windows masked", "sam")
def padding_masked(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Padded places are hidden from the others, which other code does and this model was not trained with."""
    hidden: dict[str, Tensor] = {}
    bias = Attention.position_bias

    def attend(self: Block, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        inside = sam.split_windows(x.new_ones(len(x), height, width, 1), self.window)
        hidden["keys"] = inside.flatten(1)[:, None, None] == 0
        try:
            return sam.join_windows(self.attn(sam.split_windows(x, self.window)), height, width)
        finally:
            hidden.clear()

    def position_bias(self: Attention, q: Tensor, height: int, width: int) -> Tensor:
        given = bias(self, q, height, width)
        return given.masked_fill(hidden["keys"], -torch.inf) if hidden else given

    patch.setattr(Attention, "position_bias", position_bias)
    _windows(patch, attend)


@mistake("HLD-28", "Windows padded before the norm", "sam")
def padded_before_norm(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Cut first and normed then: padding becomes the norm's bias."""

    def forward(self: Block, x: Tensor) -> Tensor:
        if self.window:
            cut = sam.split_windows(x, self.window)
            x = x + sam.join_windows(self.attn(self.norm1(cut)), *x.shape[1:3])
        else:
            x = x + self.attn(self.norm1(x))
        given: Tensor = x + self.mlp(self.norm2(x))
        return given

    patch.setattr(Block, "forward", forward)


@mistake("HLD-29", "Relative positions cut from the middle", "sam", CROPS)
def cut_relative(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """For another size, the offsets that occur are taken and nothing is interpolated, as newer code does."""

    def cut(table: Tensor, length: int) -> Tensor:
        first = (len(table) - length) // 2
        return table[first : first + length]

    patch.setattr(sam, "resize_line", cut)


@mistake("HLD-30", "SAM's positions cut at the corner", "sam", CROPS)
def cut_absolute(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """For another size, the table's first rows and columns are taken."""
    patch.setattr(sam, "resize_grid", lambda table, size: table[:size, :size])


@mistake("HLD-31", "The neck's norm with the unbiased variance", "sam")
def unbiased(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """torch.var divides by one less by default."""

    def forward(self: LayerNorm2d, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        variance = centred.pow(2).mean(dim=1, keepdim=True) * (x.shape[1] / (x.shape[1] - 1))
        normal = centred / torch.sqrt(variance + self.eps)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]

    patch.setattr(LayerNorm2d, "forward", forward)


@mistake("HLD-32", "SAM's queries, keys and values head by head", "sam")
def head_by_head(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The fused weight is read in the order of another framework: heads, three, channels."""

    def forward(self: Attention, x: Tensor) -> Tensor:
        batch, height, width, _ = x.shape
        q, k, v = self.qkv(x).view(batch, height * width, self.heads, 3, -1).permute(3, 0, 2, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.position_bias(q, height, width))
        given: Tensor = self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))
        return given

    patch.setattr(Attention, "forward", forward)


@mistake("HLD-33", "Strided convolutions padded behind only", "sam")
def same_padding(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """SAME of another framework: with stride 2 and an even side it pads right and below."""
    model = core_of(subject).sam_model
    for convolution in (model.net_2, model.net_3):
        weight = convolution.weight
        run_instead(patch, convolution, lambda x, weight=weight: F.conv2d(F.pad(x, (0, 1, 0, 1)), weight, stride=2))


@mistake("HLD-34", "The patches' kernel transposed", "sam")
def transposed_kernel(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Converted to another layout with width in front of height."""
    weight = core_of(subject).sam_model.patch_embed.proj.weight
    patch.setattr(weight, "data", weight.data.transpose(2, 3).contiguous())


@mistake("HLD-35", "Windows padded on both sides", "sam")
def padded_on_both_sides(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Half of the padding stands in front."""

    def attend(self: Block, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        top, left = -height % self.window // 2, -width % self.window // 2
        cut = sam.split_windows(F.pad(x, (0, 0, left, 0, top, 0)), self.window)
        return sam.join_windows(self.attn(cut), height + top, width + left)[:, top:, left:]

    _windows(patch, attend)


@mistake("HLD-36", "Crops after the sixth not encoded", "sam", MANY_CROPS)
def six_captured(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The encoder is captured for six views; what is behind them is left at zero."""
    encode_at_most(patch, CAPTURED, lambda made: torch.zeros_like(made[:1]))


def _tf32(x: Tensor) -> Tensor:
    """Round float32 to ten bits of mantissa; bfloat16 has seven."""
    if x.dtype != torch.float32:
        return x
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@mistake("HLD-37", "Convolutions in TF32", "sam")
def tf32(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A device rounds what goes into a convolution to ten bits, by default."""
    model = core_of(subject).sam_model
    for one in (model.patch_embed.proj, model.neck[0], model.neck[2], model.net_2, model.net_3):
        patch.setitem(
            vars(one),
            "forward",
            lambda x, one=one: F.conv2d(_tf32(x), _tf32(one.weight), one.bias, one.stride, one.padding),
        )


@mistake("HLD-38", "The class token without its position", "clip")
def class_without_position(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Positions are added to the patches only."""
    right = Embeddings.forward

    def forward(self: Embeddings, of_sam: Tensor) -> Tensor:
        made = right(self, of_sam)
        return torch.cat([made[:, :1] - self.position_embedding.weight[0], made[:, 1:]], dim=1)

    patch.setattr(Embeddings, "forward", forward)


@mistake("HLD-39", "CLIP's positions cut at the corner", "clip", CROPS)
def cut_positions(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """For another grid, the table's first rows and columns are taken."""
    patch.setattr(clip, "resize_grid", lambda table, size: table[:size, :size])


@mistake("HLD-40", "The norm in front on patches only", "clip")
def patches_normed(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The class token is put in front behind the norm."""

    def forward(self: Clip, of_sam: Tensor) -> Tensor:
        made = self.embeddings(of_sam)
        given: Tensor = self.transformer(torch.cat([made[:, :1], self.pre_layrnorm(made[:, 1:])], dim=1))
        return given

    patch.setattr(Clip, "forward", forward)


@mistake("HLD-44", "Biases of attention's output dropped", "clip")
def no_output_bias(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The key of out_proj.bias is not in the loader's table."""
    for layer in core_of(subject).vision_model.transformer.layers:
        bias: Any = layer.self_attn.out_proj.bias  # type: ignore[union-attr]
        patch.setattr(bias, "data", torch.zeros_like(bias))


@mistake("HLD-46", "Vision in bfloat16", "sam")
def vision_in_bfloat16(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The encoders' weights are in bfloat16, and what they give is widened for the decoder."""
    core = core_of(subject)
    for tower in (core.sam_model, core.vision_model):
        right: Any = tower.forward
        for parameter in tower.parameters():
            patch.setattr(parameter, "data", parameter.data.bfloat16())
        run_instead(patch, tower, lambda x, right=right: right(x.bfloat16()).to(x.dtype))
