"""Two seams, whole or summed up, and the verdict on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.seams import compare_seam, relative_error
from pytest_dsocr.compare.signs import IN_WORDS, Reason, Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.observation.observation import Seam
from tests.compare.made import random

ALLOWED = 1e-3
THEIRS = torch.tensor([[4.0, 0.0], [3.0, 0.0]])
"""Its norm is 5."""

whole_or_not = pytest.mark.parametrize("whole", [True, False], ids=["whole", "summed up"])


def seam(tensor: Tensor, whole: bool = False) -> Seam:
    return Seam.of(tensor, keep_values=whole)


def plus(amount: float) -> Tensor:
    return THEIRS + torch.tensor([[0.0, amount], [0.0, 0.0]])


@whole_or_not
def test_equal_bits_match(whole: bool) -> None:
    found = compare_seam("sam.page", seam(THEIRS.clone(), whole), seam(THEIRS, whole), 0.0)
    assert found == Comparison("sam.page", Verdict.MATCH, "every bit of [2, 2]", 0.0)


@whole_or_not
@pytest.mark.parametrize(
    ("allowed", "verdict"),
    [(0.1, Verdict.DRIFT), (math.nextafter(0.1, 0), Verdict.WRONG), (math.nextafter(0.1, 1), Verdict.DRIFT)],
)
def test_the_limit_itself_is_drift(allowed: float, verdict: Verdict, whole: bool) -> None:
    found = compare_seam("clip.page", seam(plus(0.5), whole), seam(THEIRS, whole), allowed)
    assert (found.what, found.verdict, found.error) == ("clip.page", verdict, 0.1)
    assert found.measured == "relative error 1.0e-01 (allowed 1e-01)"


@whole_or_not
def test_the_same_values_in_another_dtype_drift_by_nothing(whole: bool) -> None:
    found = compare_seam("prefill", seam(THEIRS.bfloat16(), whole), seam(THEIRS, whole), ALLOWED)
    assert (found.verdict, found.error) == (Verdict.DRIFT, 0.0)


@whole_or_not
def test_the_same_bytes_in_another_dtype_do_not_match(whole: bool) -> None:
    other = THEIRS.to(torch.float16)
    found = compare_seam("x", seam(other.view(torch.bfloat16), whole), seam(other, whole), ALLOWED)
    assert found.verdict is Verdict.WRONG


@pytest.mark.parametrize("shape", [(4,), (1, 2, 2), (2, 3)])
def test_another_shape_is_wrong_whatever_it_holds(shape: tuple[int, ...]) -> None:
    mine = torch.zeros(shape) if math.prod(shape) != 4 else THEIRS.view(shape)
    found = compare_seam("x", seam(mine), seam(THEIRS), math.inf)
    measured, signs = f"shape {list(shape)}; the reference has [2, 2]", frozenset((Sign.OTHER_SHAPE,))
    assert found == Comparison("x", Verdict.WRONG, measured, math.inf, signs=signs)


def test_a_seam_that_one_side_lacks_is_not_compared() -> None:
    have = seam(THEIRS)
    without_theirs = not_compared("x", Reason.NOT_IN_REFERENCE)
    assert compare_seam("x", have, None, ALLOWED) == without_theirs
    assert compare_seam("x", None, None, ALLOWED) == without_theirs
    without_mine = not_compared("x", Reason.NOT_GIVEN)
    assert compare_seam("x", None, have, ALLOWED) == without_mine


def with_bad(bad: float, at: int) -> Tensor:
    tensor = random(300)
    tensor[at] = bad
    return tensor


@whole_or_not
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 150, 299])
def test_what_is_not_finite_on_one_side_is_wrong(bad: float, at: int, whole: bool) -> None:
    spoilt, whole_numbers = seam(with_bad(bad, at), whole), seam(random(300), whole)
    for mine, theirs in ((spoilt, whole_numbers), (whole_numbers, spoilt)):
        found = compare_seam("x", mine, theirs, 1e9)
        assert (found.verdict, found.error) == (Verdict.WRONG, math.inf)
        assert (Sign.NOT_FINITE in found.signs) is (mine is spoilt)
        assert (IN_WORDS[Sign.NOT_FINITE] in found.details) is (mine is spoilt)


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({}, "1 NaN of 300 values, the first at [150]"),
        ({"not_finite": None}, "1 NaN of 300 values, the first at [150]"),
        ({"not_finite": None, "values": None}, "NaN or infinity, in places that its summary does not tell"),
    ],
    ids=["summed up", "whole", "an older recording"],
)
def test_where_it_is_not_finite_is_told_as_far_as_it_is_known(kept: dict[str, Any], told: str) -> None:
    spoilt, sound = replace(seam(with_bad(math.nan, 150), True), **kept), seam(random(300), True)
    other = seam(with_bad(math.inf, 0))
    assert compare_seam("x", spoilt, sound, 1e9).measured == f"{told}; the reference is finite"
    assert compare_seam("x", sound, spoilt, 1e9).measured == f"finite; the reference is not: {told}"
    also = f"{told}; the reference holds them as well: 1 infinite of 300 values, the first at [0]"
    assert compare_seam("x", spoilt, other, 1e9).measured == also


@whole_or_not
def test_a_nan_on_both_sides_matches_only_where_every_bit_does(whole: bool) -> None:
    """Equal bits are equal, whatever they stand for; NaNs in unequal tensors are never inside a tolerance."""
    spoilt = with_bad(math.nan, 7)
    assert compare_seam("x", seam(spoilt, whole), seam(spoilt.clone(), whole), ALLOWED).verdict is Verdict.MATCH
    nearly = spoilt.clone()
    nearly[0] += 1e-6
    found = compare_seam("x", seam(nearly, whole), seam(spoilt, whole), ALLOWED)
    assert (found.verdict, found.error) == (Verdict.WRONG, math.inf)
    assert Sign.NOT_FINITE not in found.signs


@whole_or_not
def test_against_a_reference_of_zeros(whole: bool) -> None:
    zeros = torch.zeros(2, 2)
    assert compare_seam("x", seam(-zeros, whole), seam(zeros, whole), ALLOWED).error == 0.0
    found = compare_seam("x", seam(zeros + 1e-30, whole), seam(zeros, whole), 1e9)
    assert (found.verdict, found.error) == (Verdict.WRONG, math.inf)


def test_whole_values_are_used_where_both_sides_have_them() -> None:
    mine, theirs = seam(plus(0.5), True), seam(THEIRS, True)
    blind = replace(mine, sketch=theirs.sketch)
    assert relative_error(blind, theirs) == 0.1
    assert relative_error(blind, replace(theirs, values=None)) == 0.0
    assert relative_error(replace(blind, values=None), theirs) == 0.0


def test_whole_values_of_two_dtypes_are_compared_wide() -> None:
    wide = random(500)
    error = relative_error(seam(wide.bfloat16(), True), seam(wide, True))
    assert error == pytest.approx(float((wide.bfloat16().double() - wide.double()).norm() / wide.double().norm()))
    assert 1e-4 < error < 4e-3


def test_the_anatomy_shows_both_sides_and_where_they_differ_most() -> None:
    mine = THEIRS + torch.tensor([[0.0, 0.25], [-1.0, 0.5]])
    assert compare_seam("x", seam(mine), seam(THEIRS), ALLOWED).details == (
        "mean         1.6875          1.75 (reference)",
        "std         1.49348       1.78536 (reference)",
        "norm        4.50694             5 (reference)",
        "3 of 4 sampled values differ, at most by 1",
        "at [1, 0]: 2, the reference has 3",
        "at [1, 1]: 0.5, the reference has 0",
        "at [0, 1]: 0.25, the reference has 0",
    )


def test_the_anatomy_shows_three_places_at_most_and_none_where_no_sample_differs() -> None:
    theirs = random(10, 20, 30)
    everywhere = compare_seam("x", seam(theirs + 1), seam(theirs), ALLOWED).details
    assert everywhere[3].startswith("64 of 64 sampled values differ, at most by 1")
    assert len(everywhere) == 7
    hidden = theirs.clone()
    hidden[0, 0, 1] += 1
    assert compare_seam("x", seam(hidden), seam(theirs), ALLOWED).details[3:] == (
        "0 of 64 sampled values differ, at most by 0",
    )


def test_places_are_named_by_their_index_in_the_tensor() -> None:
    theirs = random(10, 20, 30)
    for line in compare_seam("x", seam(theirs * 2), seam(theirs), ALLOWED).details[4:]:
        index = [int(part) for part in line[line.index("[") + 1 : line.index("]")].split(", ")]
        value = float(theirs[tuple(index)])
        assert line == f"at {index}: {2 * value:.6g}, the reference has {value:.6g}"


@whole_or_not
@pytest.mark.parametrize(
    ("change", "shuffled"),
    [
        (lambda rows: rows.roll(3, 0), True),
        (lambda rows: rows[torch.randperm(200, generator=torch.Generator().manual_seed(1))], True),
        (lambda rows: rows.roll(3, 0) * 1.0005, True),
        (lambda rows: rows + random(200, 40, seed=9), False),
        (lambda rows: rows + 0.2, False),
        (lambda rows: rows * 0.8, False),
        (lambda rows: -rows, False),
        (lambda rows: (rows - rows.mean()) * 1.2 + rows.mean(), False),
        (lambda rows: torch.cat([rows[:1], rows[:-1]]) * 1.01, False),
        (lambda rows: rows + 0.01 * random(200, 40, seed=9), False),
    ],
    ids=[
        "rolled",
        "permuted",
        "rolled, drifting",
        "noisy",
        "moved",
        "smaller",
        "negative",
        "wider",
        "larger",
        "drifting",
    ],
)
def test_values_in_other_places_are_known_by_their_size(
    change: Callable[[Tensor], Tensor], shuffled: bool, whole: bool
) -> None:
    rows = random(200, 40) + 0.5
    found = compare_seam("x", seam(change(rows), whole), seam(rows, whole), ALLOWED)
    assert (Sign.SHUFFLED in found.signs) is shuffled
    assert (IN_WORDS[Sign.SHUFFLED] in found.details) is shuffled


def test_a_drift_larger_than_usual_passes_and_is_marked() -> None:
    for usual, marked in ((0.01, True), (0.2, False)):
        found = compare_seam("x", seam(plus(0.5), True), seam(THEIRS, True), 0.1, usual)
        assert (found.verdict, Sign.SUSPICIOUS in found.signs) == (Verdict.DRIFT, marked)
    assert Sign.SUSPICIOUS not in compare_seam("x", seam(plus(0.5), True), seam(THEIRS, True), 0.05, 0.01).signs


@whole_or_not
def test_a_tensor_whose_first_rows_are_right_is_told(whole: bool) -> None:
    theirs = random(1, 640, 32)
    later = theirs.clone()
    later[:, 320:] *= 1.5
    found = compare_seam("x", seam(later, whole), seam(theirs, whole), ALLOWED)
    assert Sign.LATER_ROWS in found.signs
    assert "right up to row 320 of 640, as far as it was sampled" in found.details
    assert Sign.LATER_ROWS not in compare_seam("x", seam(theirs * 1.5, whole), seam(theirs, whole), ALLOWED).signs


def test_first_rows_are_right_up_to_a_share_of_the_largest_difference() -> None:
    theirs = random(1, 20, 1)
    later = theirs + 1e-3
    later[:, 10:] += 100.0
    assert Sign.LATER_ROWS in compare_seam("x", seam(later), seam(theirs), ALLOWED).signs


@pytest.mark.parametrize(("right", "told"), [(5, False), (6, True)])
def test_six_samples_that_are_right_are_first_rows(right: int, told: bool) -> None:
    theirs = random(20, 1)
    later = theirs.clone()
    later[right:] += 1.0
    found = compare_seam("x", seam(later), seam(theirs), ALLOWED)
    assert (Sign.LATER_ROWS in found.signs) is told
    assert (f"right up to row {right} of 20, as far as it was sampled" in found.details) is told
    vector = compare_seam("x", seam(later.flatten()), seam(theirs.flatten()), ALLOWED)
    assert not any("row" in line for line in vector.details if line.startswith("right"))
