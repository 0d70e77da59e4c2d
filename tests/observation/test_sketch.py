"""What a seam's sketch and sample see of a tensor that they do not keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pytest_dsocr.compare.seams import relative_error
from pytest_dsocr.observation.observation import Seam
from pytest_dsocr.observation.summing import SAMPLE_VALUES, SKETCH_VALUES, sample_positions
from tests.compare.made import random

SHAPES = [(257,), (40, 25), (3, 17, 64), (2, 16, 10, 10), (1, 5, 2048)]
WIDE = random(6, 50, 32, seed=9)
brief = settings(max_examples=60, database=None, deadline=None)


def estimate(mine: Tensor, theirs: Tensor) -> float:
    return relative_error(Seam.of(mine), Seam.of(theirs))


def truth(mine: Tensor, theirs: Tensor) -> float:
    return float((mine.double() - theirs.double()).norm() / theirs.double().norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_estimate_scatters_by_6_percent_around_the_true_error(shape: tuple[int, ...]) -> None:
    ratios = []
    for seed in range(60):
        theirs = random(*shape, seed=2 * seed)
        mine = theirs + random(*shape, seed=2 * seed + 1) * 10.0 ** -(seed % 5)
        ratios.append(estimate(mine, theirs) / truth(mine, theirs))
    assert 0.7 < min(ratios) <= max(ratios) < 1.3
    assert abs(np.mean(ratios) - 1) < 0.03
    assert np.std(ratios) < 0.09


def every_nth(step: int, first: int = 0) -> Tensor:
    positions = torch.arange(WIDE.numel()).view(WIDE.shape)
    return (positions % step == first).float()


CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "an offset": lambda x: x + 0.01,
    "a ramp": lambda x: x + torch.linspace(0, 1, x.numel()).view(x.shape),
    "a scale": lambda x: x * 1.001,
    "the sign": lambda x: -x,
    "every 128th value": lambda x: x + every_nth(SKETCH_VALUES),
    "every 256th value": lambda x: x + every_nth(2 * SKETCH_VALUES, 5),
    "alternating signs": lambda x: x + 1 - 2 * every_nth(2),
    "the mean alone kept": lambda x: x + every_nth(64) - every_nth(64, 33),
    "rolled by one": lambda x: x.roll(1, -1),
    "rolled by a row": lambda x: x.roll(1, 1),
    "rolled by a view": lambda x: x.roll(1, 0),
    "rows reversed": lambda x: x.flip(1),
    "axes exchanged": lambda x: x.transpose(1, 2).reshape(x.shape),
    "rounded": lambda x: x.bfloat16().float(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_with_a_pattern_is_measured_as_well_as_noise(change: Callable[[Tensor], Tensor]) -> None:
    changed = change(WIDE)
    assert estimate(changed, WIDE) == pytest.approx(truth(changed, WIDE), rel=0.3)


@brief
@given(st.integers(0, WIDE.numel() - 1), st.floats(0.01, 100.0))
def test_one_value_is_measured_exactly_wherever_it_is(position: int, amount: float) -> None:
    changed = WIDE.clone()
    changed.view(-1)[position] += amount
    assert estimate(changed, WIDE) == pytest.approx(truth(changed, WIDE), rel=1e-3)


@brief
@given(st.integers(0, 299), st.integers(0, 299))
def test_a_row_changed_or_exchanged_is_measured_wherever_it_is(a: int, b: int) -> None:
    scaled, swapped = WIDE.clone(), WIDE.clone()
    scaled.view(-1, 32)[a] *= -0.5
    swapped.view(-1, 32)[[a, b]] = swapped.view(-1, 32)[[b, a]]
    assert estimate(scaled, WIDE) == pytest.approx(truth(scaled, WIDE), rel=0.4)
    assert estimate(swapped, WIDE) == pytest.approx(truth(swapped, WIDE), rel=0.4)


whole_numbers = st.lists(st.integers(-100, 100), min_size=1, max_size=700).map(lambda row: torch.tensor(row).float())


@brief
@given(whole_numbers, st.integers(-8, 8))
def test_a_sketch_is_linear(x: Tensor, factor: int) -> None:
    y = x.flip(0) * 3
    assert torch.equal(Seam.of(x + factor * y).sketch, Seam.of(x).sketch + factor * Seam.of(y).sketch)


@brief
@given(whole_numbers, st.sampled_from([torch.bfloat16, torch.float16, torch.float64]))
def test_summaries_do_not_depend_on_the_dtype_of_equal_values(x: Tensor, dtype: torch.dtype) -> None:
    one, other = Seam.of(x), Seam.of(x.to(dtype))
    assert torch.equal(one.sketch, other.sketch)
    assert torch.equal(one.sample, other.sample)
    assert (one.mean, one.std, one.norm) == (other.mean, other.std, other.norm)


def sign_and_bucket(index: int) -> tuple[int, int]:
    """Written a second time, in Python's integers."""
    x = index
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    x ^= x >> 16
    return 1 if x % 2 else -1, (x >> 1) % 128


def test_the_sketch_is_the_recorded_function_of_a_values_position() -> None:
    """Recordings rest on it."""
    assert [sign_and_bucket(k) for k in (0, 1, 2, 1000)] == [(-1, 0), (-1, 96), (1, 64), (-1, 41)]
    for index in (*range(300), 65_535, 65_536, 99_999):
        one_hot = torch.zeros(100_000)
        one_hot[index] = 2.5
        sign, bucket = sign_and_bucket(index)
        expected = torch.zeros(128)
        expected[bucket] = sign * 2.5
        assert torch.equal(Seam.of(one_hot).sketch, expected)


@pytest.mark.parametrize(
    ("count", "positions"),
    [
        (1, [0]),
        (2, [0, 1]),
        (64, [*range(64)]),
        (1_000_000, [0, 22005, 44010, 51998, 75774, 83756, 103997, 118441]),
    ],
)
def test_sample_positions_are_the_recorded_ones(count: int, positions: list[int]) -> None:
    assert sample_positions(count).tolist()[: len(positions)] == positions


@pytest.mark.parametrize("count", [*range(1, 71), 1023, 1024, 9 * 100 * 1024, 2**31, 10**10])
def test_sample_positions_are_inside_and_spread(count: int) -> None:
    positions = sample_positions(count)
    assert len(positions) == min(count, SAMPLE_VALUES)
    assert 0 <= positions.min() <= positions.max() < count
    gaps = np.diff([0, *positions.tolist(), count])
    assert 0 <= gaps.min() <= gaps.max() <= max(2, 2 * count / SAMPLE_VALUES)


@pytest.mark.parametrize(
    "shape",
    [(9, 100, 1024), (1, 768, 20, 20), (2, 768, 10, 10), (2, 257, 1024), (6, 1280, 64, 64), (2, 3, 5, 7), (903, 1280)],
    ids=str,
)
def test_samples_lie_all_over_every_axis(shape: tuple[int, ...]) -> None:
    indices = np.unravel_index(sample_positions(int(np.prod(shape))), shape)
    for size, along in zip(shape, indices, strict=True):
        assert len(set(along.tolist())) >= min(size, SAMPLE_VALUES) / 2
        assert np.ptp(along) >= 0.9 * (size - 1)
