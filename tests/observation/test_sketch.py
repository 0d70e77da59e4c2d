"""What a seam's sketch and sample see of a tensor that they do not keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.seams import relative_error
from pytest_dsocr.observation.observation import Seam
from pytest_dsocr.observation.summing import SAMPLE_VALUES, SKETCH_VALUES, sample_positions
from tests.compare.made import random

SHAPES = [(257,), (40, 25), (3, 17, 64), (2, 16, 10, 10), (1, 5, 2048)]
WIDE = random(6, 50, 32, seed=9)


def estimate(actual: Tensor, expected: Tensor) -> float:
    return relative_error(Seam.of(actual), Seam.of(expected))


def truth(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_estimate_scatters_by_6_percent_around_the_true_error(shape: tuple[int, ...]) -> None:
    ratios = []
    for seed in range(40):
        expected = random(*shape, seed=2 * seed)
        actual = expected + random(*shape, seed=2 * seed + 1) * 10.0 ** -(seed % 5)
        ratios.append(estimate(actual, expected) / truth(actual, expected))
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
    "alternating signs": lambda x: x + 1 - 2 * every_nth(2),
    "the mean alone kept": lambda x: x + every_nth(64) - every_nth(64, 33),
    "rolled by one": lambda x: x.roll(1, -1),
    "rows reversed": lambda x: x.flip(1),
    "one value": lambda x: x + every_nth(WIDE.numel(), 777),
    "axes exchanged": lambda x: x.transpose(1, 2).reshape(x.shape),
    "rounded": lambda x: x.bfloat16().float(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_with_a_pattern_is_measured_as_well_as_noise(change: Callable[[Tensor], Tensor]) -> None:
    changed = change(WIDE)
    assert estimate(changed, WIDE) == pytest.approx(truth(changed, WIDE), rel=0.3)


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
    for index in (*range(0, 300, 7), 65_535, 65_536, 99_999):
        one_hot = torch.zeros(100_000)
        one_hot[index] = 2.5
        sign, bucket = sign_and_bucket(index)
        expected = torch.zeros(128)
        expected[bucket] = sign * 2.5
        assert torch.equal(Seam.of(one_hot).sketch, expected)


def test_sample_positions_are_the_recorded_ones() -> None:
    for count in (1, 2, 64):
        assert sample_positions(count).tolist() == [*range(count)]
    recorded = [0, 22005, 44010, 51998, 75774, 83756, 103997, 118441]
    assert sample_positions(1_000_000).tolist()[: len(recorded)] == recorded


def test_sample_positions_are_inside_and_spread() -> None:
    for count in (*range(1, 71, 3), 1023, 1024, 9 * 100 * 1024, 10**10):
        positions = sample_positions(count)
        assert len(positions) == min(count, SAMPLE_VALUES)
        assert 0 <= positions.min() <= positions.max() < count
        gaps = np.diff([0, *positions.tolist(), count])
        assert 0 <= gaps.min() <= gaps.max() <= max(2, 2 * count / SAMPLE_VALUES)
