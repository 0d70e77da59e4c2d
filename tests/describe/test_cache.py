"""Slots of a real cache that are changed are found in the first layer that differs; steps are found by their number."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from pytest_dsocr.describe.cache import describe_cache, describe_steps, rows_of
from pytest_dsocr.explain.mistake import model_of
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


FOUND: dict[str, tuple[Callable[[], Kept], str]] = {
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


def of_layer(layer: int, other: int) -> Kept:
    """Return the cache in which a layer has the content of another one."""
    kept = [*right()]
    kept[layer] = kept[other]
    return kept


def turned(by: int, first: int) -> Kept:
    """Return the cache whose keys are rotated for other positions from a slot on."""
    angles = torch.cat([by * frequencies()] * 2)

    def turn(rows: Tensor) -> Tensor:
        x = rows[first:].unflatten(1, (-1, len(angles)))
        one, other = x.chunk(2, -1)
        made = x * angles.cos() + torch.cat([-other, one], -1) * angles.sin()
        return put(rows, slice(first, None), made.flatten(1))

    return changed(turn, slice(0, 1), keys_alone=True)


def partly(channels: slice, base: float = 1e4, *, has_neighbours: bool = False, factor: float = 1.0) -> Kept:
    """Return the cache in which some channels of the first layer's keys are rotated as a head of their own."""
    size = 2 * len(frequencies())
    width = len(range(size)[channels])
    own = factor / base ** (torch.arange(0, width, 2) / width)

    def multiply(x: Tensor, angles: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        made = torch.complex(one, other) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([made.real, made.imag], -1)

    def turn(rows: Tensor) -> Tensor:
        at = torch.arange(len(rows))[:, None]
        bare = multiply(rows.unflatten(1, (-1, size)), -at * frequencies())
        part = bare[..., channels]
        part = part.unflatten(-1, (-1, 2)).mT.flatten(-2) if has_neighbours else part
        part = multiply(part, at * own)
        bare[..., channels] = part.unflatten(-1, (2, -1)).mT.flatten(-2) if has_neighbours else part
        return bare.flatten(1)

    return changed(turn, slice(0, 1), keys_alone=True)


def frequencies() -> Tensor:
    """Return the frequencies of the rotation."""
    return model_of(engine()).model.inv_freq


FOUND |= {
    "another layer's": (
        lambda: of_layer(2, 3),
        f"layer 2 has the keys and values of layer 3 in all {prompt() + 2} slots",
    ),
    "lower positions": (
        lambda: turned(-256, prompt()),
        f"layer 0, from slot {prompt()} (new token 1) on, the keys are rotated for positions 256 lower than their own",
    ),
    "the last half": (
        lambda: partly(slice(32, None)),
        "the keys have channels 32 to 63 of a head's 64 rotated, by the frequencies of a head of 32 channels, and "
        "channels 0 to 31 not",
    ),
    "some channels by a base": (
        lambda: partly(slice(20, 44), 5e5, has_neighbours=True),
        "channels 20 to 43 of a head's 64 rotated, neighbouring ones as a pair, by the frequencies of 24 channels and "
        "a base of 5e+05, and channels 0 to 19 and 44 to 63 not",
    ),
    "all channels backwards": (
        lambda: partly(slice(None), factor=-1),
        "the keys have channels 0 to 63 of a head's 64 rotated, backwards, by the right frequencies; the values",
    ),
    "the first quarter by a factor": (
        lambda: partly(slice(16), factor=0.25),
        "channels 0 to 15 of a head's 64 rotated, by 0.25 times the frequencies of a head of 16 channels, and",
    ),
    "the layer before": (
        lambda: changed(lambda x: put(x, slice(prompt(), None), random(2, x.shape[1])), slice(2, None)),
        "in steps, layer 1 computes another output: its keys and values in the cache are right, and those of layer 2",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_slots_that_differ_are_found(name: str) -> None:
    kept, words = FOUND[name]
    found = describe_cache(kept(), right(), prompt(), frequencies=frequencies())
    assert found is not None
    assert found.explains, found.text
    assert words in found.text


def test_nothing_is_said_of_keys_that_are_kept_otherwise() -> None:
    other = changed(lambda x: x + random(*x.shape), keys_alone=True)
    assert describe_cache(other, right(), prompt(), frequencies=frequencies()) is None
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
