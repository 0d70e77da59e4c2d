"""Two seams, whole or summed up, and the verdict on them."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from pytest_dsocr.compare.seams import compare_seam, is_reordered, relative_error
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.records.reference_result import Seam
from tests.compare.made import random, shown

ALLOWED = 1e-3
FIVE = torch.tensor([[4.0, 0.0], [3.0, 0.0]])
"""Tensor with a norm of 5."""

whole_or_not = pytest.mark.parametrize("whole", [True, False], ids=["whole", "summed up"])


def compared(
    actual: Tensor, expected: Tensor, whole: bool = False, allowed: float = ALLOWED, **more: Any
) -> Comparison:
    sides = [Seam.of(tensor, keep_values=whole) for tensor in (actual, expected)]
    return compare_seam("x", sides[0], sides[1], allowed, **more)


def plus(amount: float) -> Tensor:
    return FIVE + torch.tensor([[0.0, amount], [0.0, 0.0]])


@whole_or_not
def test_another_dtype_drifts_by_what_its_values_do(whole: bool) -> None:
    same = compared(FIVE.bfloat16(), FIVE, whole)
    assert (same.verdict, same.error) == (Verdict.DRIFT, 0.0)
    half = FIVE.to(torch.float16)
    assert compared(half.view(torch.bfloat16), half, whole).verdict is Verdict.WRONG, "the same bytes"
    wide = random(500)
    error = float((wide.bfloat16().double() - wide.double()).norm() / wide.double().norm())
    assert compared(wide.bfloat16(), wide, True).error == pytest.approx(error)


def test_another_shape_is_wrong_whatever_it_holds_and_what_one_side_lacks_is_not_compared() -> None:
    found = compared(FIVE.view(4), FIVE, allowed=math.inf)
    assert (found.verdict, found.error, {*found.signs}) == (Verdict.WRONG, math.inf, {Symptom.OTHER_SHAPE})
    assert found.measured == "shape [4]; the reference has [2, 2]: as many values"
    have = Seam.of(FIVE)
    for actual in (have, None):
        assert compare_seam("x", actual, None, ALLOWED) == not_compared("x", Reason.NOT_IN_REFERENCE)
    assert compare_seam("x", None, have, ALLOWED) == not_compared("x", Reason.NOT_GIVEN)


@pytest.mark.parametrize(
    ("shape", "in_common"),
    [
        ((1, 4, 6), ": only axes of size 1 differ"),
        ((4, 1, 6), ": only axes of size 1 differ"),
        ((6, 4), ": the same axes in another order"),
        ((3, 8), ": as many values"),
        ((4, 5), ""),
    ],
)
def test_a_shape_that_is_nearly_right_is_told_from_others(shape: tuple[int, ...], in_common: str) -> None:
    expected = Seam.of(torch.zeros(4, 6))
    found = compare_seam("x", Seam.of(torch.zeros(shape)), expected, ALLOWED)
    assert found.measured == f"shape {list(shape)}; the reference has [4, 6]{in_common}"


VIEWS = 1.0 + 0.1 * random(4, 64, 256)


@pytest.mark.parametrize(
    ("changed", "is_other_order"),
    [
        (VIEWS.flip(0), True),
        (VIEWS[[1, 0, 2, 3]], True),
        (VIEWS.flip(0) * (1 + 1e-6), True),
        (VIEWS + 0.05 * random(4, 64, 256, seed=3), False),
        (VIEWS * 1.03, False),
        (torch.cat([VIEWS[:1]] * 4), False),
        (VIEWS, False),
    ],
)
def test_only_the_same_values_in_other_places_are_views_in_another_order(changed: Tensor, is_other_order: bool) -> None:
    assert is_reordered(Seam.of(changed), Seam.of(VIEWS)) is is_other_order


def with_bad(bad: float, at: int) -> Tensor:
    tensor = random(300)
    tensor[at] = bad
    return tensor


@whole_or_not
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_is_wrong(bad: float, whole: bool) -> None:
    for at in (0, 150, 299):
        spoilt, finite = with_bad(bad, at), random(300)
        for actual, expected in ((spoilt, finite), (finite, spoilt)):
            found = compared(actual, expected, whole, 1e9)
            assert (found.verdict, found.error) == (Verdict.WRONG, math.inf)
            assert (Symptom.NOT_FINITE in found.signs) is (actual is spoilt)


@pytest.mark.parametrize(
    "kept", [{}, {"not_finite": None}, {"not_finite": None, "values": None}], ids=["summed up", "whole", "older"]
)
def test_where_it_is_not_finite_is_reported_as_far_as_it_is_known(
    kept: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    spoilt = replace(Seam.of(with_bad(math.nan, 150), keep_values=True), **kept)
    sides = {"finite": Seam.of(random(300), keep_values=True), "spoilt": Seam.of(with_bad(math.inf, 0))}
    found = [compare_seam("x", *pair, 1e9) for other in sides.values() for pair in ((spoilt, other), (other, spoilt))]
    assert [one.measured for one in found] == snapshot


@whole_or_not
def test_a_nan_on_both_sides_matches_only_where_every_bit_does(whole: bool) -> None:
    """Equal bits always match; no tolerance allows a NaN in unequal tensors."""
    spoilt = with_bad(math.nan, 7)
    assert compared(spoilt.clone(), spoilt, whole).verdict is Verdict.MATCH
    nearly = spoilt.clone()
    nearly[0] += 1e-6
    found = compared(nearly, spoilt, whole)
    assert (found.verdict, found.error, found.signs) == (Verdict.WRONG, math.inf, frozenset())


@whole_or_not
def test_against_a_reference_of_zeros(whole: bool) -> None:
    zeros = torch.zeros(2, 2)
    assert compared(-zeros, zeros, whole).error == 0.0
    assert compared(zeros + 1e-30, zeros, whole, 1e9).verdict is Verdict.WRONG


def test_whole_values_are_used_where_both_sides_have_them() -> None:
    actual, expected = (Seam.of(tensor, keep_values=True) for tensor in (plus(0.5), FIVE))
    blind = replace(actual, sketch=expected.sketch)
    assert relative_error(blind, expected) == 0.1
    assert relative_error(blind, replace(expected, values=None)) == 0.0
    assert relative_error(replace(blind, values=None), expected) == 0.0


def test_the_anatomy_shows_both_sides_and_where_they_differ_most(snapshot: SnapshotAssertion) -> None:
    expected = random(10, 20, 30)
    hidden = expected.clone()
    hidden[0, 0, 1] += 1
    found = {
        "three values": compared(FIVE + torch.tensor([[0.0, 0.25], [-1.0, 0.5]]), FIVE),
        "everywhere": compared(expected * 2, expected),
        "not among the samples": compared(hidden, expected),
    }
    assert {name: shown(one) for name, one in found.items()} == snapshot
    for line in found["everywhere"].details[5:]:
        index = [int(part) for part in line[line.index("[") + 1 : line.index("]")].split(", ")]
        assert f"reference has {float(expected[tuple(index)]):.6g}" in line


@whole_or_not
@pytest.mark.parametrize(
    ("change", "shuffled"),
    [
        (lambda rows: rows.roll(3, 0), True),
        (lambda rows: -rows, False),
        (lambda rows: rows + random(200, 40, seed=9), False),
        (lambda rows: (rows - rows.mean()) * 1.2 + rows.mean(), False),
        (lambda rows: torch.cat([rows[:1], rows[:-1]]) * 1.01, False),
        (lambda rows: rows.roll(3, 0) * 1.00004, False),
    ],
    ids=["rolled", "negative", "noisy", "wider", "larger", "nearly as large"],
)
def test_values_in_other_places_are_known_by_their_size(
    change: Callable[[Tensor], Tensor], shuffled: bool, whole: bool
) -> None:
    rows = random(200, 40) + 0.5
    found = compared(change(rows), rows, whole)
    assert (Symptom.SHUFFLED in found.signs) is (Symptom.SHUFFLED.sentence in found.details) is shuffled


def test_a_drift_larger_than_usual_passes_and_is_marked() -> None:
    for usual, marked in ((0.01, True), (0.2, False)):
        found = compared(plus(0.5), FIVE, True, 0.1, usual=usual)
        assert (found.verdict, Symptom.SUSPICIOUS in found.signs) == (Verdict.DRIFT, marked)
    assert Symptom.SUSPICIOUS not in compared(plus(0.5), FIVE, True, 0.05, usual=0.01).signs


@pytest.mark.parametrize(
    ("wrong", "sign"),
    [(slice(8, None), True), (slice(8, 9), False), (slice(8, None, 2), False), (slice(1, None), False)],
    ids=["later", "one", "scattered", "nearly all"],
)
def test_first_rows_are_called_right_if_all_later_ones_are_wrong(wrong: slice, sign: bool) -> None:
    expected = random(20, 4)
    later = expected + 1e-4
    later[wrong] += 1.0
    found = compared(later, expected, True)
    assert (Symptom.LATER_ROWS in found.signs) is ("right up to row 7 of 20" in found.details) is sign
    for other in (compared(later[:, 0], expected[:, 0], True), compared(later, expected)):
        assert Symptom.LATER_ROWS not in other.signs, "logits have no rows, and samples do not tell of all rows"
