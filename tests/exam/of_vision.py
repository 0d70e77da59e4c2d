"""Mistakes in SAM, CLIP, the projector and the fusion of features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import clip, fusion, model, pipeline, sam
from pytest_dsocr.engine.sam import join_windows, split_windows
from pytest_dsocr.subjects.session import SessionSubject
from tests.exam.planting import CROPS, core_of, instead, mistake, run_instead


@mistake("THD-13", "Windows are cut before the norm", "sam")
def padded_then_normed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Norm and attention became one kernel on windows: their padding is normed as well, to the norm's bias."""

    def forward(right: Any, self: Any, x: Tensor) -> Any:
        if not self.window:
            return right(self, x)
        x = x + join_windows(self.attn(self.norm1(split_windows(x, self.window))), *x.shape[1:3])
        return x + self.mlp(self.norm2(x))

    instead(patch, sam.Block, "forward", forward)


@mistake("THD-14", "Relative positions see the scaled query", "sam")
def scaled_query(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Queries are scaled once, in front of everything, so the scores of relative positions shrink with them."""
    instead(patch, sam.Attention, "position_bias", lambda right, self, q, *s: right(self, q * q.shape[-1] ** -0.5, *s))


@mistake("THD-15", "Relative positions of crops are not stretched", "sam", CROPS)
def middle_of_table(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """In global layers a smaller view takes the middle of the table, as if it were cut out of the larger one."""
    patch.setattr(sam, "resize_line", lambda table, length: table.narrow(0, (len(table) - length) // 2, length))


@mistake("THD-16", "The neck's variance is the sample's", "sam")
def sample_variance(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """LayerNorm2d is written with torch.var, which divides by one channel less."""

    def forward(self: sam.LayerNorm2d, x: Tensor) -> Tensor:
        normal = (x - x.mean(dim=1, keepdim=True)) / torch.sqrt(x.var(dim=1, keepdim=True) + self.eps)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]

    patch.setattr(sam.LayerNorm2d, "forward", forward)


@mistake("THD-17", "The last convolutions pad at one end", "sam")
def same_padding(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Padding 1 became "same", which for stride 2 pads right and bottom alone, and so looks one place further on."""
    for conv in (core_of(subject).sam_model.net_2, core_of(subject).sam_model.net_3):
        run_instead(patch, conv, lambda x, own=conv: F.conv2d(F.pad(x, (0, 1, 0, 1)), own.weight, stride=2))


@mistake("THD-18", "CLIP reads SAM's features column by column", "clip")
def by_columns(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height and width were exchanged when the layout became channels-last, which no shape of a square view shows."""
    instead(patch, clip.Embeddings, "forward", lambda right, self, x_BCHW: right(self, x_BCHW.transpose(2, 3)))


@mistake("THD-19", "CLIP's first norm has no weights", "clip")
def norm_not_found(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The loader looks for pre_layernorm, spelled rightly, does not find it, and leaves ones and zeros."""
    norm = core_of(subject).vision_model.pre_layrnorm
    patch.setattr(norm.weight, "data", torch.ones_like(norm.weight))
    patch.setattr(norm.bias, "data", torch.zeros_like(norm.bias))


@mistake("THD-20", "CLIP gives its last layer but one", "clip")
def last_but_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The tower is LLaVA's, which takes the features in front of the last layer."""

    def forward(self: clip.Transformer, x: Tensor) -> Tensor:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states[-2]

    patch.setattr(clip.Transformer, "forward", forward)


@mistake("THD-21", "Crops are padded to the page's length", "clip", CROPS)
def padded_crops(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """An exported graph takes 257 positions; those of a crop are filled up with zeros, which no mask hides."""
    longest = len(core_of(subject).vision_model.embeddings.position_embedding.weight)

    def forward(right: Any, self: Any, x: Tensor) -> Any:
        return right(self, F.pad(x, (0, 0, 0, max(longest - x.shape[1], 0))))[:, : x.shape[1]]

    instead(patch, clip.Transformer, "forward", forward)


@mistake("THD-22", "CLIP's queries, keys and values are taken head by head", "clip")
def by_heads(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The fused product is read as Megatron lays it out: a head's query, key and value, then the next head's."""

    def forward(self: clip.Attention, x: Tensor) -> Any:
        q, k, v = self.qkv_proj(x).unflatten(2, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4)
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    patch.setattr(clip.Attention, "forward", forward)


@mistake("THD-23", "The last patch is dropped for the class token", "projector")
def wrong_end(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """CLIP's class token is taken for the last one, so each of SAM's features stands beside its left neighbour's."""
    instead(patch, model, "beside", lambda right, clip, sam: right(clip.roll(1, dims=1), sam))


@mistake("THD-24", "Rows begin with the newline", "vision_fusion")
def newline_first(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The newline is put in front of each row and not behind it; there are as many."""
    instead(patch, fusion, "end_rows", lambda right, *args: right(*args).roll(1, dims=-2))


@mistake("THD-25", "Crops are laid out by rows and columns exchanged", "vision_fusion", "a grid that is no square")
def exchanged_grid(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The grid is read as rows and columns, and the result is viewed in the right shape, so that all counts fit."""
    instead(patch, fusion, "mosaic", lambda right, x, at: (laid := right(x, at[::-1])).reshape(*laid.shape[1::-1], -1))


@mistake("THD-26", "The separator stands between crops and page", "vision_fusion", CROPS)
def separator_between(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """It separates the views, as in DeepSeek-VL2, where here it ends the image."""

    def fuse(right: Any, crops: Any, *rest: Any) -> Any:
        made, of_page = right(crops, *rest), len(right(None, *rest))
        return made if crops is None else torch.cat([made[:-of_page], made[-1:], made[-of_page:-1]])

    instead(patch, pipeline, "fuse", fuse)
