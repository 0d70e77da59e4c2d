"""Distances, order and repetition of sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.training.sequences import common_prefix, edit_distance, out_of_order, repeats
from tests.contract.fuzzing import fuzz


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("abcdef", "azced", 3),
        ("naïve 茶", "naive 茶", 1),
        ("a\ud800b", "ab", 1),
        ("\N{OGHAM SPACE MARK}x", "x", 1),
    ],
)
def test_edit_distance(a: str, b: str, expected: int) -> None:
    assert edit_distance(a, b) == expected
    assert edit_distance(b, a) == expected


@fuzz
@given(a=st.text("abc", max_size=9), b=st.text("abc", max_size=9))
def test_edit_distance_is_that_of_the_definition(a: str, b: str) -> None:
    assert edit_distance(a, b) == _by_definition(a, b)


def _by_definition(a: str, b: str) -> int:
    table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            replaced = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            table[i, j] = min(replaced, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return table[len(a), len(b)]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [([], 0), ([3], 0), ([0, 1, 2], 0), ([1, 0], 1), ([0, 3, 1, 2], 1), ([2, 3, 0, 1], 2), ([3, 2, 1, 0], 3)],
)
def test_out_of_order(positions: list[int], expected: int) -> None:
    assert out_of_order(positions) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"), [("", "x", 0), ("abc", "abd", 2), ("ab", "abc", 2), ("abc", "abc", 3), ("xbc", "abc", 0)]
)
def test_common_prefix(a: str, b: str, expected: int) -> None:
    assert common_prefix(a, b) == expected
    assert common_prefix(list(b), list(a)) == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abac", 1),
        ("aab", 2),
        ("xaaay", 3),
        ("abab", 2),
        ("abcabcab", 2),
        ("zabababc", 3),
        ("aabaab", 2),
        ("abaabaaba", 3),
    ],
)
def test_repeats(items: str, expected: int) -> None:
    assert repeats(items) == expected
