"""Mistakes planted in blocks of the embedded model: the part that differs is found, and no other is named."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.block import Variant
from pytest_dsocr.describe.heads import of_heads
from pytest_dsocr.explain.described import _of_part
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.names import TensorName
from tests.describe.planted import Found, Planted, attends, described, weights
from tests.describe.real import block, clean, engine, random


class Turned:
    """Rotary positions of queries that differ from those of keys."""

    def __init__(self, right: Rope, other: Rope) -> None:
        self.positions, self._ropes = right.positions, [other, right]

    def rotate(self, x: Tensor) -> Tensor:
        return self._ropes.pop(0).rotate(x)


def queries_late(layer: Any, changes: Changes) -> None:
    def attend(run: Any, x: Tensor, rope: Rope, cache: Any) -> Any:
        return run(x, Turned(rope, Rope(model_of(engine()).model.inv_freq, rope.positions + 2, x.dtype)), cache)

    changes.around(layer.self_attn, attend)


def other_base(layer: Any, changes: Changes) -> None:
    size = layer.self_attn.head_dim
    frequencies = 1 / 500_000 ** (torch.arange(0, size, 2).float() / size)
    changes.around(
        layer.self_attn, lambda run, x, rope, cache: run(x, Rope(frequencies, rope.positions, x.dtype), cache)
    )


def partly_turned(first: int, end: int, step: int, *, has_neighbours: bool = False) -> Planted:
    """Return a mistake that rotates some channels of queries and keys by every second, or other, frequency."""

    def plant(layer: Any, changes: Changes) -> None:
        def rotate(rope: Rope, x: Tensor) -> Tensor:
            part = x[..., first:end]
            rope = Rope(rope.inverse_frequencies[::step][: (end - first) // 2], rope.positions, x.dtype)
            if has_neighbours:
                part = usual(rope, part.unflatten(-1, (-1, 2)).mT.flatten(-2)).unflatten(-1, (2, -1)).mT.flatten(-2)
            else:
                part = usual(rope, part)
            return torch.cat([x[..., :first], part, x[..., end:]], -1)

        usual = Rope.rotate
        changes.set(Rope, "rotate", rotate)

    return plant


def masked(q: Tensor, k: Tensor, v: Tensor, later: int, window: int = 10_000) -> Tensor:
    """Attend with another mask."""
    at = torch.arange(q.shape[2])
    visible = (at <= at[:, None] + later) & (at > at[:, None] - window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def in_int8(layer: Any, changes: Changes) -> None:
    for one in layer.parameters():
        if one.ndim > 1:
            scale = one.abs().max() / 127
            changes.weight(one, (one / scale).round() * scale)


def by_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend in blocks of queries, each with a mask that begins at its top left."""
    ends = range(24, q.shape[2] + 24, 24)
    parts = ((q[:, :, n - 24 : n], k[:, :, :n], v[:, :, :n]) for n in ends)
    return torch.cat([F.scaled_dot_product_attention(*one, is_causal=True) for one in parts], dim=2)


def split_by_channel(layer: Any, changes: Changes) -> None:
    for parameter in (layer.self_attn.qkv_proj.weight, layer.self_attn.qkv_proj.bias):
        changes.weight(parameter, parameter.data.unflatten(0, (3, 32, 6)).transpose(1, 2).flatten(0, 2))


def gated_by_gelu(layer: Any, changes: Changes) -> None:
    for mlp in (layer.mlp.shared_experts, *layer.mlp.experts):
        changes.forward(mlp, lambda x, mlp=mlp: mlp.down_proj(F.gelu(mlp.gate_proj(x)) * mlp.up_proj(x)))


def without_second_norm(layer: Any, changes: Changes) -> None:
    changes.forward(layer.layer_norm2, lambda x: x)


def zero_head(matrix: Tensor, head: int = 1, factor: float = 0.0, size: int = 32) -> Tensor:
    matrix[:, head * size : (head + 1) * size] *= factor
    return matrix


def by_head(*factors: float) -> Planted:
    """Return a mistake of some heads' temperatures."""
    return attends(
        lambda q, k, v: F.scaled_dot_product_attention(q * torch.tensor(factors)[:, None, None], k, v, is_causal=True)
    )


def sloped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend less to keys that are far away."""
    at = torch.arange(q.shape[2])
    bias = (-0.1 * (at[:, None] - at)).masked_fill(at > at[:, None], -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


FOUND: Mapping[str, Found] = {
    "queries late": Found("prefill/2", queries_late, "positions", "rotated by positions 2 higher than keys"),
    "base": Found("prefill/2", other_base, "positions", "the rotary frequencies is multiplied by 50"),
    "last half": Found(
        "prefill/0",
        partly_turned(32, 64, 2),
        "positions",
        "only channels 32 to 63 of a head's 64 are rotated by their position, with the frequencies of a head of 32",
    ),
    "first quarter": Found(
        "prefill/2",
        partly_turned(0, 16, 1, has_neighbours=True),
        "positions",
        "only channels 0 to 15 of a head's 64 are rotated by their position, with the first 8 of 32 frequencies, n",
    ),
    "later keys": Found(
        "prefill/2", attends(lambda q, k, v: masked(q, k, v, 1)), "mask", "each query sees 1 later key"
    ),
    "window": Found("prefill/2", attends(lambda q, k, v: masked(q, k, v, 0, 32)), "mask", "its 32 last keys alone"),
    "scores": Found("prefill/2", weights("self_attn.q_proj.weight", lambda w: 0.7 * w), "scores", "multiplied by 0.7"),
    "base of the softmax": Found(
        "prefill/2",
        weights("self_attn.q_proj.weight", lambda w: math.log(2) * w),
        "scores",
        "the scores are multiplied by 0.693 (ln 2, as in a softmax of base 2)",
    ),
    "attention": Found(
        "prefill/2", weights("self_attn.o_proj.weight", lambda w: 1.5 * w), "attention", "counts 1.5 times"
    ),
    "head": Found("clip.page/1", weights("self_attn.out_proj.weight", zero_head), "heads", "head 1 of 6 has no output"),
    "some heads": Found("prefill/2", by_head(1, 0.5, 1, 0.5), "heads", "heads 1 and 3 of 4 are multiplied by 0.5"),
    "temperatures": Found(
        "prefill/2",
        by_head(0.5, 1, 1.5, 2),
        "heads",
        "the scores of heads 0 and 2 to 3 of 4 are multiplied by 0.5, 1.5 and 2",
    ),
    "weak heads": Found(
        "clip.page/1",
        weights("self_attn.out_proj.weight", lambda w: zero_head(zero_head(w, 1, factor=0.5), 4, factor=0.5)),
        "heads",
        "the output of heads 1 and 4 of 6 counts 0.5 times",
    ),
    "slope": Found("prefill/2", attends(sloped), "heads", "the scores of each head change by -0.1 for each token"),
    "norm": Found("clip.page/1", without_second_norm, "norms", "norm before the perceptron is left out"),
    "gates": Found("prefill/2", gated_by_gelu, "activation", "the activation is the exact GELU"),
    "int8": Found("prefill/2", in_int8, "rounded", "weights are held in int8 with one scale for the tensor"),
    "blocks of queries": Found("prefill/2", attends(by_blocks), "mask", "each block of 24 queries sees the keys"),
    "joined": Found(
        "clip.page/1",
        weights("self_attn.out_proj.weight", lambda w: w.unflatten(1, (32, 6)).transpose(1, 2).flatten(1)),
        "heads",
        "joined channel by channel, not head by head",
    ),
    "split": Found("clip.page/1", split_by_channel, "heads", "split by part, then by channel, then by head"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_part_of_a_block_that_differs_is_found(name: str) -> None:
    FOUND[name].check()


def test_views_that_attend_to_one_another_are_told_of() -> None:
    given = block("clip.page/1").given + 0.1 * random(2, *block("clip.page/1").given.shape[1:])
    layer = blocks_of(engine(), "clip")[1]
    with torch.no_grad():
        right, joined = layer(given), layer(given.flatten(0, 1)[None]).view_as(given)
        made = Clean(engine(), clean().inputs, {})
        found = _of_part(made, TensorName.parse("clip.crops/1"), joined, right, given)
    assert found is not None
    assert (found.kind, found.explains) == ("mask", True), found.text
    assert "attend to those of all 2 views" in found.text


OTHER: Mapping[str, tuple[str, Planted]] = {
    "noise in keys": ("prefill/2", weights("self_attn.k_proj.weight", lambda w: w + 0.02 * random(*w.shape))),
    "noise in an MLP": ("clip.page/1", weights("mlp.fc1.weight", lambda w: w + 0.02 * random(*w.shape))),
    "noise in the router": ("prefill/3", weights("mlp.gate.weight", lambda w: w + 0.02 * random(*w.shape))),
    "noise in SAM": ("sam.page/2", weights("attn.qkv.weight", lambda w: w + 0.02 * random(*w.shape))),
}


@pytest.mark.parametrize("name", OTHER)
def test_no_part_is_named_for_another_mistake(name: str) -> None:
    found = described(*OTHER[name])
    assert (found.kind, found.explains) == ("anatomy", False), found.text


def test_numbers_that_are_all_but_right_are_not_named() -> None:
    parts, right = random(2, 8, 16), torch.ones(2)

    def compute(how: Variant) -> Tensor:
        factors = right if how.head_factors is None else how.head_factors
        return torch.einsum("n,nrc->rc", factors, parts)

    actual = compute(replace(Variant(), head_factors=right + 1e-5))
    assert [*of_heads(compute, actual, 2, is_decoder=False)] == []
