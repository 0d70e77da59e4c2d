"""Steps with a mistake after a right prefill: the wrong part of the layer is described."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.cache import rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.explain.stepping import Steps, describe_kept
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.inside import watch_inside
from tests.describe.real import clean, engine

TOKENS = [*range(300, 330)]
Plant = Callable[[list[Any], Changes], None]


def described(plant: Plant, *, hides_attention: bool = False, hides_all: bool = False) -> Description | None:
    """Describe steps in which layers have a mistake."""
    pipeline, blocks = engine().pipeline, [*blocks_of(engine(), PREFILL)]
    with torch.no_grad(), Changes() as changes, ExitStack() as hooks:
        state = pipeline.prefill_with(clean().inputs, clean().in_prompt)
        plant(blocks, changes)
        seen = [hooks.enter_context(watch_inside(one)) for one in blocks]
        for token in TOKENS:
            pipeline.decode_step(state, [token])
    cache = state.cache
    kept = [(rows_of(cache.keys(k)), rows_of(cache.values(k))) for k in range(cache.layers)]
    gave = {k: torch.stack([one.gave.flatten() for one in of]) for k, of in enumerate(seen)}
    attended = {
        k: torch.stack([one.tensors[call.given].flatten() for one in of for call in one.calls if "o_proj" in call.path])
        for k, of in enumerate(seen)
    }
    steps = Steps({} if hides_attention or hides_all else attended, {} if hides_all else gave)
    return describe_kept(clean(), TOKENS, kept, steps)


def sorted_experts(layer: int) -> Plant:
    """Return a mistake that sorts a token's experts and not their weights."""

    def plant(blocks: list[Any], changes: Changes) -> None:
        gate = blocks[layer].mlp.gate
        usual = gate.forward

        def route(x: Tensor) -> tuple[Tensor, Tensor]:
            chosen, weights = usual(x)
            order = weights.argsort(-1, descending=True)
            return chosen.sort(-1).values, weights.gather(-1, order)

        changes.forward(gate, route)

    return plant


def one_expert(blocks: list[Any], changes: Changes) -> None:
    changes.set(blocks[2].mlp.gate, "experts_per_token", 1)


def no_shared(blocks: list[Any], changes: Changes) -> None:
    changes.forward(blocks[1].mlp.shared_experts, torch.zeros_like)


def half_dense(blocks: list[Any], changes: Changes) -> None:
    changes.around(blocks[0].mlp, lambda run, x: 0.5 * run(x))


def other_activation(layer: int) -> Plant:
    """Return a mistake that takes GELU instead of SiLU."""

    def plant(blocks: list[Any], changes: Changes) -> None:
        def run(usual: Any, x: Tensor) -> Tensor:
            with Changes() as inner:
                inner.set(F, "silu", F.gelu)
                out: Tensor = usual(x)
            return out

        changes.around(blocks[layer].mlp, run)

    return plant


def padded(blocks: list[Any], changes: Changes) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, _: object) -> Tensor:
        k, v = (F.pad(repeat_heads(one, q), (0, 0, 0, -one.shape[2] % 16)) for one in (k, v))
        out: Tensor = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return out

    for block in blocks:
        changes.set(block.self_attn, "attend", attend)


FOUND: Mapping[str, tuple[Plant, str]] = {
    "sorted": (
        sorted_experts(1),
        "at 18 of the 30 steps compared: the largest weight of a token goes to",
    ),
    "last layer": (sorted_experts(4), "layer 4 is wrong after its attention, at"),
    "one expert": (
        one_expert,
        "layer 2 is wrong after its attention, at each of the 30 steps compared: each token",
    ),
    "shared": (no_shared, "the shared experts are left out, and the routed ones count once"),
    "dense": (
        half_dense,
        "layer 0 is wrong after its attention, at each of the 30 steps compared: the block",
    ),
    "GELU": (other_activation(0), "at each of the 30 steps compared: the activation is the exact GELU"),
    "GELU of experts": (other_activation(1), "at each of the 30 steps compared: the activation is the exact GELU"),
    "padded": (padded, "attention in layer 0 is wrong, though its keys and values are right: the softmax's sum has"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_part_of_a_layer_that_is_wrong_in_steps_is_described(name: str) -> None:
    plant, words = FOUND[name]
    found = described(plant)
    assert found is not None
    assert found.explains, found.text
    assert words in found.text


def test_a_layer_that_hides_its_modules_is_described_by_the_cache_alone() -> None:
    found = described(sorted_experts(1), hides_all=True)
    assert found is not None
    assert "layer 1 computes another output: its keys and values in the cache are right" in found.text
    assert "attention is right" not in found.text


def test_of_a_layer_that_hides_its_attention_nothing_is_said_about_it() -> None:
    found = described(sorted_experts(1), hides_attention=True)
    assert found is not None
    assert "layer 1 gives another output, at" in found.text
    assert "goes to its expert with the lowest number" in found.text
    other = described(padded, hides_attention=True)
    assert other is None or "after its attention" not in other.text


def test_nothing_is_said_of_right_steps() -> None:
    found = described(lambda *_: None)
    assert found is not None
    assert not found.explains
