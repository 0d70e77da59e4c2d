"""Mistakes in CLIP and the projector."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import clip, sam
from pytest_dsocr.engine.clip import Attention, Clip, Embeddings, Layer
from pytest_dsocr.engine.model import Projector
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_sam import GARBAGE, LARGER, LITTLE, resized
from tests.faults.registry import CROPS, core_of, fault, run_instead


def _layers(subject: SessionSubject) -> list[Any]:
    return list(core_of(subject).vision_model.transformer.layers)


def _zero(patch: pytest.MonkeyPatch, parameter: Tensor) -> None:
    patch.setattr(parameter, "data", torch.zeros_like(parameter))


def _attending(**options: Any) -> Any:
    def forward(self: Attention, x: Tensor) -> Tensor:
        qkv = self.qkv_proj(x).view(*x.shape[:2], 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, **options)
        given: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        return given

    return forward


@fault("CLP-01", "The exact GELU", "clip", LITTLE, "quick GELU")
def exact_gelu(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The default activation is used in place of x * sigmoid(1.702 x)."""
    patch.setattr(clip, "quick_gelu", F.gelu)


@fault(
    "CLP-02",
    "Epsilon of 1e-6",
    "clip",
    "nothing, or a near tie that goes the other way",
    "epsilon",
)
def other_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The default of another encoder's config was copied."""
    for layer in _layers(subject):
        patch.setattr(layer.layer_norm1, "eps", 1e-6)
        patch.setattr(layer.layer_norm2, "eps", 1e-6)


@fault("CLP-03", "Positions resized without antialias", "clip", LITTLE, "antialias", CROPS)
def not_antialiased(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """CLIP's table was taken for one that is resized plainly."""
    patch.setattr(clip, "resize_grid", lambda table, size: resized(table, size, antialias=False))


@fault("CLP-04", "The class token's row taken from the end", "clip", LITTLE, "class token's row", CROPS)
def class_row_last(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The grid is taken from row 0 on, and the last row for the class token's, where the table is resized."""

    def forward(self: Embeddings, sam_BCHW: Tensor) -> Tensor:
        batch, width, side, _ = sam_BCHW.shape
        tokens = torch.cat([self.class_embedding.expand(batch, 1, -1), sam_BCHW.flatten(2).transpose(1, 2)], dim=1)
        table = self.position_embedding.weight
        grid = int((len(table) - 1) ** 0.5)
        if side == grid:
            given: Tensor = tokens + table
            return given
        of_grid = resized(table[:-1].view(grid, grid, width), side).reshape(-1, width)
        return tokens + torch.cat([table[-1:], of_grid])

    patch.setattr(Embeddings, "forward", forward)


@fault("CLP-08", "Queries, keys and values head by head", "clip", GARBAGE, "head by head")
def interleaved_heads(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """view(b, s, H, 3, D) in place of view(b, s, 3, H, D)."""

    def forward(self: Attention, x: Tensor) -> Tensor:
        qkv = self.qkv_proj(x).view(*x.shape[:2], self.heads, 3, -1)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)
        given: Tensor = self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return given

    patch.setattr(Attention, "forward", forward)


@fault("CLP-W1", "The quick GELU of 1.7 x", "clip", "nothing", "1.702")
def rounded_constant(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The constant was rounded."""
    patch.setattr(clip, "quick_gelu", lambda x: x * torch.sigmoid(1.7 * x))


@fault("CLP-W2", "No norm in front", "clip", GARBAGE, "norm in front")
def no_norm_in_front(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The pre-norm, misspelt in the checkpoint, was not found."""
    patch.setattr(Clip, "forward", lambda self, sam: self.transformer(self.embeddings(sam)))


@fault("CLP-W3", "A norm at the end", "clip", LITTLE, "no norm behind")
def norm_at_the_end(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """CLIP's usual norm behind its last layer was added."""
    right = Clip.forward
    patch.setattr(Clip, "forward", lambda self, sam: F.layer_norm(right(self, sam), sam.shape[1:2]))


@fault("CLP-W4", "No positions", "clip", GARBAGE, "positions")
def no_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """SAM's features were taken to hold them already."""
    _zero(patch, core_of(subject).vision_model.embeddings.position_embedding.weight)


@fault("CLP-W5", "The class token not loaded", "clip", LITTLE, "class")
def no_class_token(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Its parameter is not in the loader's table."""
    _zero(patch, core_of(subject).vision_model.embeddings.class_embedding)


@fault("CLP-W6", "A causal mask", "clip", GARBAGE, "causal|mask")
def causal(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The attention of CLIP's text tower was used."""
    patch.setattr(Attention, "forward", _attending(is_causal=True))


@fault("CLP-W7", "Attention without its scale", "clip", GARBAGE, "scale")
def unscaled(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The scale is thought to be in the query's weights."""
    patch.setattr(Attention, "forward", _attending(scale=1.0))


@fault("CLP-W8", "The last layer left out", "clip", LITTLE, "number of blocks")
def last_layer_left_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Features are taken from the layer before the last, as other vision-language models do."""
    run_instead(patch, _layers(subject)[-1], lambda x: x)


@fault("CLP-W9", "SAM's map read column by column", "clip", GARBAGE, "row by row|SAM's features")
def transposed_map(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height and width are exchanged before the map is flattened."""
    right = Embeddings.forward
    patch.setattr(Embeddings, "forward", lambda self, sam: right(self, sam.transpose(2, 3)))


@fault("CLP-W10", "Biases of queries, keys and values dropped", "clip", GARBAGE, "bias")
def no_qkv_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The linear layer was built with bias=False."""
    for layer in _layers(subject):
        _zero(patch, layer.self_attn.qkv_proj.bias)


@fault("CLP-W11", "One layer's bias dropped", "clip", LITTLE, r"block \d+, for.*biases")
def one_bias_dropped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The key of one tensor is misspelt in the loader's table."""
    _zero(patch, _layers(subject)[min(5, len(_layers(subject)) - 1)].mlp.fc2.bias)


@fault("CLP-W12", "Queries and keys exchanged", "clip", GARBAGE, "queries, keys")
def exchanged_keys(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The fused weights are unpacked in another order."""

    def forward(self: Attention, x: Tensor) -> Tensor:
        qkv = self.qkv_proj(x).view(*x.shape[:2], 3, self.heads, -1)
        k, q, v = qkv.permute(2, 0, 3, 1, 4)
        given: Tensor = self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return given

    patch.setattr(Attention, "forward", forward)


@fault("CLP-W13", "Positions of the grid transposed", "clip", GARBAGE, "positions")
def transposed_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The table is read column by column."""
    right = sam.resize_grid
    patch.setattr(clip, "resize_grid", lambda table, size: right(table, size).transpose(0, 1))


@fault("DTP-07", "Layers rounded to bfloat16", "clip", LITTLE, "autocast|round|dtype")
def rounded_layers(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The residual stream is in bfloat16, where autocast keeps it in float32."""
    right = Layer.forward
    patch.setattr(Layer, "forward", lambda self, x: right(self, x).bfloat16().float())


def _projected(patch: pytest.MonkeyPatch, joined: Any) -> None:
    patch.setattr(Pipeline, "projector", lambda self, clip, sam: self.model.project(joined(clip, sam)))


def _flat(sam: Tensor) -> Tensor:
    return sam.flatten(2).transpose(1, 2)


@fault("CLP-07", "The last token dropped in place of the class token", "projector", GARBAGE, "the first, not the last")
def last_token_dropped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """[:, :-1] in place of [:, 1:]."""
    _projected(patch, lambda clip, sam: torch.cat([clip[:, :-1], _flat(sam)], dim=-1))


@fault("PRJ-02", "SAM's map reshaped without moving its channels", "projector", GARBAGE, "row by row")
def reshaped_map(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """reshape(B, HW, C) of memory that is in NCHW."""
    _projected(patch, lambda clip, sam: torch.cat([clip[:, 1:], sam.reshape(len(sam), -1, sam.shape[1])], dim=-1))


@fault("PRJ-W1", "SAM's features in front of CLIP's", "projector", GARBAGE, "CLIP's features stand before SAM's")
def sam_first(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The two have one width, and were joined in the order in which they run."""
    _projected(patch, lambda clip, sam: torch.cat([_flat(sam), clip[:, 1:]], dim=-1))


@fault("PRJ-W2", "The projector's bias dropped", "projector", LITTLE, "bias")
def no_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The linear layer was built with bias=False."""
    bias = core_of(subject).projector.layers.bias
    assert bias is not None
    _zero(patch, bias)


@fault("PRJ-W3", "SAM's map read column by column", "projector", GARBAGE, "row by row")
def map_by_columns(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height and width are exchanged before the map is flattened, for the projector only."""
    _projected(patch, lambda clip, sam: torch.cat([clip[:, 1:], _flat(sam.transpose(2, 3))], dim=-1))


@fault("PRJ-W4", "An activation behind the projector", "projector", GARBAGE, "activation|one linear")
def activated(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The projectors of other models end in a GELU."""
    patch.setattr(Projector, "forward", lambda self, x: F.gelu(self.layers(x)))


@fault("PRJ-W5", "Features normed before the projector", "projector", GARBAGE, "norm")
def normed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The projectors of other models begin with a norm."""
    patch.setattr(Projector, "forward", lambda self, x: self.layers(F.layer_norm(x, x.shape[-1:])))


@fault("CLP-W14", "Positions of larger views taken anew from the first row", "clip", LITTLE, "positions", LARGER)
def wrapped_positions(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Places are taken modulo the table's side, where the vendor's resizes it."""
    right = sam.resize_grid

    def resize(table: Tensor, size: int) -> Tensor:
        at = torch.arange(size) % len(table)
        return table[at][:, at] if size > len(table) else right(table, size)

    patch.setattr(clip, "resize_grid", resize)
