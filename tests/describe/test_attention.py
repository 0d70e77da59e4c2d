"""Mistakes planted in blocks of the embedded model: the part that differs is found, and no other is named."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.block import Variant
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.heads import of_heads
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.described import Seen, _of_part, describe_seen
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.layers import sam
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam
from tests.describe.real import block, clean, engine, random

KEPT = 10
"""Number of tokens of an expert that are kept."""
Planted = Callable[[Any, Engine[Any], Changes], None]


class Turned:
    """Rotary positions of queries that differ from those of keys."""

    def __init__(self, right: Rope, other: Rope) -> None:
        self.positions, self._ropes = right.positions, [other, right]

    def rotate(self, x: Tensor) -> Tensor:
        return self._ropes.pop(0).rotate(x)


def queries_late(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    def attend(run: Any, x: Tensor, rope: Rope, cache: Any) -> Any:
        return run(x, Turned(rope, Rope(model_of(engine).model.inv_freq, rope.positions + 2, x.dtype)), cache)

    changes.around(layer.self_attn, attend)


def other_base(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    size = layer.self_attn.head_dim
    frequencies = 1 / 500_000 ** (torch.arange(0, size, 2).float() / size)
    changes.around(
        layer.self_attn, lambda run, x, rope, cache: run(x, Rope(frequencies, rope.positions, x.dtype), cache)
    )


def partly_turned(first: int, end: int, step: int, *, has_neighbours: bool = False) -> Planted:
    """Return a mistake that rotates some channels of queries and keys by every second, or other, frequency."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
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


def attends(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Planted:
    """Return a mistake that attends by a function of queries, keys and values."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        changes.set(layer.self_attn, "attend", lambda q, k, v, lengths: change(q, k, v))

    return plant


def masked(q: Tensor, k: Tensor, v: Tensor, later: int, window: int = 10_000) -> Tensor:
    """Attend with another mask."""
    at = torch.arange(q.shape[2])
    visible = (at <= at[:, None] + later) & (at > at[:, None] - window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


def weights(path: str, change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake of a weight."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        parameter = layer.get_parameter(path)
        changes.weight(parameter, change(parameter.data.clone()))

    return plant


def exchanged_experts(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    own = [*layer.mlp.experts]
    own[3], own[5] = own[5], own[3]
    changes.set(layer.mlp, "experts", nn.ModuleList(own))


def normalised_weights(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    changes.set(layer.mlp.gate, "normalise", True)


def one_expert(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    changes.set(layer.mlp.gate, "experts_per_token", 1)


def weights_by_number(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        return chosen.sort(dim=-1).values, weights.sort(dim=-1, descending=True).values

    changes.around(layer.mlp.gate, routed)


def first_tokens(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    """Drop the tokens of an expert after its tenth."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        places = F.one_hot(chosen.flatten(), 64).cumsum(0).gather(1, chosen.flatten()[:, None]).view_as(chosen)
        return chosen, weights * (places <= KEPT)

    changes.around(layer.mlp.gate, routed)


def without_light(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    """Leave out experts with a weight below a tenth of the token's largest."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        return chosen, weights * (weights >= 0.1 * weights.amax(1, keepdim=True))

    changes.around(layer.mlp.gate, routed)


def without_last_row(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    """Leave out the last token of one expert."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        of = chosen == chosen.max()
        return chosen, weights * ~(of & (of.any(1, keepdim=True).cumsum(0) == of.any(1).sum()))

    changes.around(layer.mlp.gate, routed)


def shared_by_weights(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    gate = layer.mlp.gate
    changes.around(layer.mlp.shared_experts, lambda run, x: run(x) * gate(x.flatten(0, -2))[1].sum(1)[:, None])


def weighed_at(outside: float, inside: float) -> Planted:
    """Return a mistake that multiplies outputs and inputs of experts by powers of their weights."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        def forward(x: Tensor) -> Tensor:
            tokens = x.flatten(0, -2)
            out = layer.mlp.shared_experts(tokens)
            chosen, weights = layer.mlp.gate(tokens)
            for of, weight in zip(chosen.T, weights.T[..., None], strict=True):
                out = out + weight**outside * layer.mlp.run_looped(weight**inside * tokens, of[:, None])
            made: Tensor = out.view_as(x)
            return made

        changes.forward(layer.mlp, forward)

    return plant


def cooled(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    """Take other weights of the right experts."""
    changes.around(layer.mlp.gate, lambda run, x: (run(x)[0], run(x)[1] ** 0.7))


def routed_by(change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake that chooses experts by other scores than those that weight them."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        def routed(x: Tensor) -> tuple[Tensor, Tensor]:
            scores = F.linear(x.float(), layer.mlp.gate.weight.float()).softmax(-1)
            chosen = change(scores).topk(2).indices
            return chosen, scores.gather(1, chosen)

        changes.forward(layer.mlp.gate, routed)

    return plant


def two_of_four_groups(scores: Tensor) -> Tensor:
    parts = scores.unflatten(1, (4, 2))
    sums = parts.sum(-1)
    kept: Tensor = parts * (sums >= sums.topk(2).values[:, -1:])[..., None]
    return kept.flatten(1)


def without_best(scores: Tensor) -> Tensor:
    return scores.where(scores < scores.amax(1, keepdim=True), torch.zeros(()))


def without_second(scores: Tensor) -> Tensor:
    second = scores.topk(2).values[:, 1:]
    return scores.where(scores != second, torch.zeros(()))


def without_third(scores: Tensor) -> Tensor:
    return scores.where(torch.arange(scores.shape[1]) != 2, torch.zeros(()))


def in_int8(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    for one in layer.parameters():
        if one.ndim > 1:
            scale = one.abs().max() / 127
            changes.weight(one, (one / scale).round() * scale)


def by_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend in blocks of queries, each with a mask that begins at its top left."""
    ends = range(24, q.shape[2] + 24, 24)
    parts = ((q[:, :, n - 24 : n], k[:, :, :n], v[:, :, :n]) for n in ends)
    return torch.cat([F.scaled_dot_product_attention(*one, is_causal=True) for one in parts], dim=2)


def split_by_channel(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    for parameter in (layer.self_attn.qkv_proj.weight, layer.self_attn.qkv_proj.bias):
        changes.weight(parameter, parameter.data.unflatten(0, (3, 32, 6)).transpose(1, 2).flatten(0, 2))


def gated_by_gelu(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    for mlp in (layer.mlp.shared_experts, *layer.mlp.experts):
        changes.forward(mlp, lambda x, mlp=mlp: mlp.down_proj(F.gelu(mlp.gate_proj(x)) * mlp.up_proj(x)))


def without_second_norm(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    changes.forward(layer.layer_norm2, lambda x: x)


def zero_head(matrix: Tensor, head: int = 1, factor: float = 0.0, size: int = 32) -> Tensor:
    matrix[:, head * size : (head + 1) * size] *= factor
    return matrix


def both_tables(change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake of both tables of relative positions."""

    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        for table in (layer.attn.rel_pos_h, layer.attn.rel_pos_w):
            changes.weight(table, change(table.data.clone()))

    return plant


def tables_late(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    right = sam.relative_table

    def late(table: Tensor, size: int) -> Tensor:
        return right(sam.resize_line(table, 2 * size - 1).roll(-1, 0), size)

    changes.set(sam, "relative_table", late)


def half_of_attention(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    changes.around(layer.attn, lambda run, x: 0.5 * run(x))


def windows_moved(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    right = layer.attend
    changes.set(layer, "attend", lambda x: right(x.roll((7, 7), (1, 2))).roll((-7, -7), (1, 2)))


def windows_from_the_end(layer: Any, engine: Engine[Any], changes: Changes) -> None:
    def attend(x: Tensor) -> Tensor:
        front = F.pad(x, (0, 0, -x.shape[2] % layer.window, 0, -x.shape[1] % layer.window, 0))
        out = sam.join_windows(layer.attn(sam.split_windows(front, layer.window)), *front.shape[1:3])
        return out[:, -x.shape[1] :, -x.shape[2] :]

    changes.set(layer, "attend", attend)


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


FOUND: Mapping[str, tuple[str, Planted, str, str]] = {
    "queries late": ("prefill/2", queries_late, "positions", "rotated by positions 2 higher than keys"),
    "base": ("prefill/2", other_base, "positions", "the rotary frequencies is multiplied by 50"),
    "last half": (
        "prefill/0",
        partly_turned(32, 64, 2),
        "positions",
        "only channels 32 to 63 of a head's 64 are rotated by their position, with the frequencies of a head of 32",
    ),
    "first quarter": (
        "prefill/2",
        partly_turned(0, 16, 1, has_neighbours=True),
        "positions",
        "only channels 0 to 15 of a head's 64 are rotated by their position, with the first 8 of 32 frequencies, n",
    ),
    "later keys": ("prefill/2", attends(lambda q, k, v: masked(q, k, v, 1)), "mask", "each query sees 1 later key"),
    "window": ("prefill/2", attends(lambda q, k, v: masked(q, k, v, 0, 32)), "mask", "its 32 last keys alone"),
    "scores": ("prefill/2", weights("self_attn.q_proj.weight", lambda w: 0.7 * w), "scores", "multiplied by 0.7"),
    "base of the softmax": (
        "prefill/2",
        weights("self_attn.q_proj.weight", lambda w: math.log(2) * w),
        "scores",
        "the scores are multiplied by 0.693 (ln 2, as in a softmax of base 2)",
    ),
    "attention": ("prefill/2", weights("self_attn.o_proj.weight", lambda w: 1.5 * w), "attention", "counts 1.5 times"),
    "head": ("clip.page/1", weights("self_attn.out_proj.weight", zero_head), "heads", "head 1 of 6 has no output"),
    "some heads": ("prefill/2", by_head(1, 0.5, 1, 0.5), "heads", "heads 1 and 3 of 4 are multiplied by 0.5"),
    "temperatures": (
        "prefill/2",
        by_head(0.5, 1, 1.5, 2),
        "heads",
        "the scores of heads 0 and 2 to 3 of 4 are multiplied by 0.5, 1.5 and 2",
    ),
    "weak heads": (
        "clip.page/1",
        weights("self_attn.out_proj.weight", lambda w: zero_head(zero_head(w, 1, factor=0.5), 4, factor=0.5)),
        "heads",
        "the output of heads 1 and 4 of 6 counts 0.5 times",
    ),
    "slope": ("prefill/2", attends(sloped), "heads", "the scores of each head change by -0.1 for each token"),
    "norm": ("clip.page/1", without_second_norm, "norms", "norm before the perceptron is left out"),
    "gates": ("prefill/2", gated_by_gelu, "activation", "the activation is the exact GELU"),
    "experts": (
        "prefill/3",
        exchanged_experts,
        "experts",
        "experts 3 and 5 differ; their outputs are those of",
    ),
    "an expert": (
        "prefill/3",
        weights("mlp.experts.2.down_proj.weight", torch.zeros_like),
        "experts",
        "routed to expert 2 differ; its output is left out",
    ),
    "an expert's factor": (
        "prefill/3",
        weights("mlp.experts.2.down_proj.weight", lambda w: 3 * w),
        "experts",
        "routed to expert 2 differ; its output is multiplied by 3",
    ),
    "pairs": ("prefill/3", weights_by_number, "experts", "goes to its expert with the lowest number"),
    "capacity": (
        "prefill/3",
        first_tokens,
        "experts",
        "of experts 0 to 4 and 7, after the first 10 tokens",
    ),
    "light": (
        "prefill/3",
        without_light,
        "experts",
        "the last expert's weight over that of the token's first is below 0.1",
    ),
    "last row": ("prefill/3", without_last_row, "experts", "is left out: that of expert 7, the last one of its"),
    "int8": ("prefill/2", in_int8, "rounded", "weights are held in int8 with one scale for the tensor"),
    "blocks of queries": (
        "prefill/2",
        attends(by_blocks),
        "mask",
        "each block of 24 queries sees the keys",
    ),
    "one expert": ("prefill/3", one_expert, "experts", "each token has 1 expert instead of 2"),
    "joined": (
        "clip.page/1",
        weights("self_attn.out_proj.weight", lambda w: w.unflatten(1, (32, 6)).transpose(1, 2).flatten(1)),
        "heads",
        "joined channel by channel, not head by head",
    ),
    "split": ("clip.page/1", split_by_channel, "heads", "split by part, then by channel, then by head"),
    "shared by weights": (
        "prefill/3",
        shared_by_weights,
        "experts",
        "the shared experts' output is multiplied by the sum of the token's weights",
    ),
    "groups": (
        "prefill/3",
        routed_by(two_of_four_groups),
        "experts",
        "tokens have other experts: they are chosen inside the best 2 of 4 groups of 2 experts, by the two best scores",
    ),
    "ranks": ("prefill/3", routed_by(without_best), "experts", "experts: they are those of the ranks 2 and 3"),
    "half of the shared": (
        "prefill/3",
        weights("mlp.shared_experts.down_proj.weight", lambda w: w * (torch.arange(w.shape[1]) < w.shape[1] // 2)),
        "experts",
        "inside the shared experts, channels 128 to 255 of 256 are left out",
    ),
    "never": ("prefill/3", routed_by(without_third), "experts", "tokens have other experts: expert 2 is never chosen"),
    "odd ranks": ("prefill/3", routed_by(without_second), "experts", "other experts, of the ranks 1 and 3 by score"),
    "weights": ("prefill/3", normalised_weights, "experts", "divided by their sum"),
    "weights of inputs": (
        "prefill/3",
        weighed_at(0, 1),
        "experts",
        "weight multiplies its expert's input, not its out",
    ),
    "weights of gates": ("prefill/3", weighed_at(-1, 1), "experts", "weight multiplies its expert's gate inside of"),
    "weights twice": ("prefill/3", weighed_at(2, 0), "experts", "weight multiplies its expert's output twice"),
    "other weights": ("prefill/3", cooled, "experts", "experts are right, and their weights are others: they sum to"),
    "shared": (
        "prefill/3",
        weights("mlp.shared_experts.down_proj.weight", lambda w: 2 * w),
        "experts",
        "the shared experts count twice, and the routed ones count once",
    ),
    "tables": (
        "sam.page/2",
        tables_late,
        "bias",
        "tables of relative positions are read 1 late",
    ),
    "no tables": ("sam.page/2", both_tables(torch.zeros_like), "bias", "relative positions are left out"),
    "windows": ("sam.page/1", windows_from_the_end, "windows", "padded in front, not at the end"),
    "moved windows": ("sam.page/1", windows_moved, "windows", "moved by 7 positions, around the edge"),
    "a window's attention": ("sam.page/1", half_of_attention, "attention", "counts 0.5 times"),
}


def described(what: str, plant: Planted) -> Description:
    """Describe the output of a block with a mistake, from its right input."""
    right, given = block(what)
    stage, _, depth = TensorName.parse(what)
    assert depth is not None
    layer = blocks_of(engine(), stage)[depth]
    with Changes() as changes, torch.no_grad():
        plant(layer, engine(), changes)
        if stage == "prefill":
            cache = model_of(engine()).new_cache()
            positions = cache.positions(given.shape[1], given.device)
            gave = layer(given, Rope(model_of(engine()).model.inv_freq, positions, given.dtype), cache)
        else:
            gave = layer(given)
    [found] = describe_seen(clean(), Seen(what, gave, (given,)), Seam.of(right))
    return found


@pytest.mark.parametrize("name", FOUND)
def test_the_part_of_a_block_that_differs_is_found(name: str) -> None:
    what, plant, kind, words = FOUND[name]
    found = described(what, plant)
    assert (found.kind, found.explains) == (kind, True), found.text
    assert words in found.text


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


@pytest.mark.parametrize("inside", [0.8, 1.5, 2])
def test_no_weights_are_named_that_the_output_only_resembles(inside: float) -> None:
    found = described("prefill/1", weighed_at(0, inside))
    assert "weights" not in found.text, found.text


def test_no_experts_are_named_that_the_output_only_resembles() -> None:
    def plant(layer: Any, engine: Engine[Any], changes: Changes) -> None:
        routed_by(without_third)(layer, engine, changes)
        weighed_at(0, 1)(layer, engine, changes)

    found = described("prefill/1", plant)
    assert "experts" not in found.text, found.text


def test_numbers_that_are_all_but_right_are_not_named() -> None:
    parts, right = random(2, 8, 16), torch.ones(2)

    def compute(how: Variant) -> Tensor:
        factors = right if how.head_factors is None else how.head_factors
        return torch.einsum("n,nrc->rc", factors, parts)

    actual = compute(replace(Variant(), head_factors=right + 1e-5))
    assert [*of_heads(compute, actual, 2, is_decoder=False)] == []
