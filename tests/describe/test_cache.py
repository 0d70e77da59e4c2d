"""Slots of a real cache that are changed are found in the first layer that differs; steps are found by their number."""

from collections.abc import Callable, Mapping
from functools import cache

import pytest
import torch
from torch import Tensor

from pytest_dsocr.describe.cache import describe_cache, describe_steps, rows_of
from tests.describe.real import clean, engine, random

Kept = list[tuple[Tensor, Tensor]]


@cache
def right() -> Kept:
    """Return keys and values of each layer after a prompt and two steps."""
    with torch.no_grad():
        state = engine().pipeline.prefill_with(clean().inputs, clean().in_prompt)
        for token in (7, 8):
            engine().pipeline.decode_step(state, [token])
    return [(rows_of(state.cache.keys(k)), rows_of(state.cache.values(k))) for k in range(state.cache.layers)]


def prompt() -> int:
    """Return the number of the prompt's tokens."""
    return int(clean().inputs.input_ids.shape[1])


def changed(change: Callable[[Tensor], Tensor], layers: slice = slice(None), *, keys_alone: bool = False) -> Kept:
    """Return the cache with other keys and values in some layers."""
    kept = [*right()]
    kept[layers] = [(change(k.clone()), v if keys_alone else change(v.clone())) for k, v in kept[layers]]
    return kept


def put(rows: Tensor, which: slice, values: Tensor | float = 0.0) -> Tensor:
    """Return rows of which some are others."""
    rows[which] = values
    return rows


FOUND: Mapping[str, tuple[Callable[[], Kept], str]] = {
    "every 16th": (
        lambda: changed(lambda x: put(x, slice(15, None, 16))),
        "keys and values of layer 0: slots 15, 31 and so on, every 16th",
    ),
    "the token before": (
        lambda: changed(lambda x: put(x, slice(1, 17), x[:16].clone()), keys_alone=True),
        "of the keys of layer 0: slots 1 to 16 hold the expected slots one earlier (0 to 15)",
    ),
    "the steps": (
        lambda: changed(lambda x: put(x, slice(prompt(), None)), slice(2, None)),
        "of the keys and values of layer 2, the first that differs: slots",
    ),
    "one slot less": (lambda: changed(lambda x: torch.cat([x[:9], x[10:]])), "without the expected slot 9"),
    "fp8": (lambda: changed(lambda x: x.to(torch.float8_e4m3fn).float()), "the values are rounded to float8 (e4m3)"),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_slots_that_differ_are_found(name: str) -> None:
    kept, words = FOUND[name]
    found = describe_cache(kept(), right(), prompt())
    assert found is not None
    assert found.explains, found.text
    assert words in found.text


def test_nothing_is_said_of_keys_that_are_kept_otherwise() -> None:
    assert describe_cache(changed(lambda x: x + random(*x.shape)), right(), prompt()) is None
    found = describe_cache(right(), right(), prompt())
    assert found is not None
    assert not found.explains


def test_steps_are_found_by_their_period() -> None:
    errors = [float(k % 8 == 7) for k in range(40)]
    found = describe_steps(errors, 1e-4, is_cache_right=False)
    assert found is not None
    assert found.text == "only 5 of 40 steps are beyond the tolerance: every 8th, from 7 on"
    assert describe_steps([0.0, *[1.0] * 40], 1e-4, is_cache_right=False) is None
    of_all = describe_steps([0.0, *[1.0] * 40], 1e-4, is_cache_right=True)
    assert of_all is not None
    assert "40 of 41 steps are beyond the tolerance, from step 1 on" in of_all.text
