"""What a comparison can say, and which of several is the gravest."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict, equal, not_compared, worst
from pytest_dsocr.foundation.words import shown


def test_verdicts_are_named_as_reports_name_them() -> None:
    assert [str(verdict) for verdict in Verdict] == ["MATCH", "DRIFT", "TIE-FLIP", "WRONG", "NOT-COMPARED"]


def test_severity_ranks_every_verdict_and_not_compared_below_all() -> None:
    assert SEVERITY == ("NOT-COMPARED", "MATCH", "DRIFT", "TIE-FLIP", "WRONG")


@pytest.mark.parametrize(
    ("verdicts", "gravest"),
    [
        ([], "NOT-COMPARED"),
        (["NOT-COMPARED", "NOT-COMPARED"], "NOT-COMPARED"),
        (["MATCH", "NOT-COMPARED"], "MATCH"),
        (["NOT-COMPARED", "DRIFT", "MATCH"], "DRIFT"),
        (["TIE-FLIP", "DRIFT", "MATCH"], "TIE-FLIP"),
        (["MATCH", "WRONG", "TIE-FLIP", "DRIFT"], "WRONG"),
    ],
)
def test_worst(verdicts: list[str], gravest: str) -> None:
    assert worst(Comparison("x", Verdict(verdict), "") for verdict in verdicts) == gravest


def test_exact_things_match_or_are_shown_side_by_side() -> None:
    assert equal("grid", (2, 3), (2, 3), "columns and rows") == Comparison("grid", Verdict.MATCH, "columns and rows")
    apart = equal("grid", (2, 3), "2x3", "columns and rows")
    assert apart == Comparison("grid", Verdict.WRONG, "(2, 3); the reference has 2x3")


def test_exact_things_name_the_other_side() -> None:
    assert equal("grid", 1, 2, "alike", "the snapshot").measured == "1; the snapshot has 2"


def test_nothing_to_compare_says_why() -> None:
    assert not_compared("sam", Reason.NOT_GIVEN) == Comparison(
        "sam", Verdict.NOT_COMPARED, "promised by the subject and not given", reason=Reason.NOT_GIVEN
    )
    assert not_compared("sam", Reason.NOT_GIVEN, "no seam").measured == "no seam"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 60, "a" * 60),
        ("a" * 61, "a" * 57 + "..."),
        ([1, None], "[1, None]"),
        ("", ""),
        ("é" * 99, "é" * 57 + "..."),
    ],
)
def test_shown_fits_a_line(value: object, text: str) -> None:
    assert shown(value) == text
    assert shown("abcdef", 5) == "ab..."


@pytest.mark.parametrize(
    ("comparison", "passes"),
    [
        (Comparison("x", Verdict.MATCH, ""), True),
        (Comparison("x", Verdict.DRIFT, ""), True),
        (Comparison("x", Verdict.TIE_FLIP, ""), True),
        (Comparison("x", Verdict.WRONG, ""), False),
        (Comparison("x", Verdict.WRONG, "", reason=Reason.NEITHER), False),
        (not_compared("x", Reason.NEITHER), True),
        (not_compared("x", Reason.NOT_OFFERED), True),
        *((not_compared("x", reason), False) for reason in sorted({*Reason} - {Reason.NEITHER, Reason.NOT_OFFERED})),
        (Comparison("x", Verdict.NOT_COMPARED, "not offered"), False),
        (not_compared("x", Reason.NOT_OFFERED, "in other words"), True),
    ],
)
def test_what_was_not_compared_passes_only_where_nobody_has_or_promised_it(
    comparison: Comparison, passes: bool
) -> None:
    assert comparison.passes is passes


@pytest.mark.parametrize(
    ("what", "stage"),
    [
        ("input_ids", "input_ids"),
        ("sam.page", "sam"),
        ("sam.crops/3", "sam"),
        ("prefill", "prefill"),
        ("prefill/11", "prefill"),
        ("prefill_best", "prefill_best"),
        ("result.mmd", "result.mmd"),
        ("boxes", "boxes"),
    ],
)
def test_a_comparison_is_of_a_stage(what: str, stage: str) -> None:
    assert Comparison(what, Verdict.MATCH, "").stage == stage
