"""Boxes paired by overlap, held against trying every assignment."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pytest_dsocr.compare.boxes import iou, match, overlaps
from pytest_dsocr.contract.markup import Box
from tests.contract.fuzzing import fuzz

UNIT = Box(0, 0, 10, 10)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (UNIT, 1.0),
        (Box(0, 0, 10, 5), 0.5),
        (Box(5, 0, 15, 10), 1 / 3),
        (Box(5, 5, 15, 15), 25 / 175),
        (Box(10, 0, 20, 10), 0.0),
        (Box(20, 0, 30, 10), 0.0),
        (Box(0, 20, 10, 30), 0.0),
        (Box(20, 20, 30, 30), 0.0),
        (Box(5, 5, 5, 9), 0.0),
        (Box(10, 10, 0, 0), 0.0),
    ],
)
def test_iou(other: Box, expected: float) -> None:
    assert iou(UNIT, other) == pytest.approx(expected)
    assert iou(other, UNIT) == pytest.approx(expected)


def test_overlaps_are_ours_by_theirs() -> None:
    assert overlaps([UNIT], [Box(0, 0, 10, 5), Box(20, 20, 30, 30), UNIT]) == [[0.5, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("scores", "pairs"),
    [
        ([], []),
        ([[]], []),
        ([[], []], []),
        ([[0.0]], []),
        ([[0.2]], [(0, 0)]),
        ([[0.9, 0.8], [0.8, 0.0]], [(0, 1), (1, 0)]),  # the best single pair is not in the best assignment
        ([[0.9], [0.95]], [(1, 0)]),
        ([[0.0, 0.3], [0.0, 0.2]], [(0, 1)]),
    ],
)
def test_pairs(scores: list[list[float]], pairs: list[tuple[int, int]]) -> None:
    assert match(scores) == pairs


SCORES = (0.0, 0.0, 0.1, 0.25, 0.5, 0.6, 0.9, 1.0)
SIDES = st.integers(1, 5)
TABLES = st.tuples(SIDES, SIDES).flatmap(lambda shape: arrays(float, shape, elements=st.sampled_from(SCORES)))


@fuzz
@given(scores=TABLES)
def test_no_assignment_is_better(scores: npt.NDArray[np.float64]) -> None:
    pairs = match(scores)
    assert pairs == sorted(pairs)
    assert all(len(set(side)) == len(pairs) for side in zip(*pairs, strict=True))
    assert all(scores[pair] > 0 for pair in pairs)
    table = scores if scores.shape[0] <= scores.shape[1] else scores.T
    best = max(
        sum(table[row, column] for row, column in enumerate(columns))
        for columns in permutations(range(table.shape[1]), table.shape[0])
    )
    assert sum(scores[pair] for pair in pairs) == pytest.approx(best)


def test_many_boxes_are_paired_at_once() -> None:
    scores = np.random.default_rng(0).random((60, 50))
    order = np.random.default_rng(1).permutation(50)
    scores[order, np.arange(50)] = 2.0
    assert match(scores) == sorted(zip(order.tolist(), range(50), strict=True))
