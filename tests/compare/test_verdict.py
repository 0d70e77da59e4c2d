"""What a comparison can say, which of several is the gravest, and with which of them a run may pass."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict, as_expected, equal, not_compared, worst


def test_verdicts_are_named_as_reports_name_them_and_ranked() -> None:
    assert SEVERITY == ("NOT-COMPARED", "MATCH", "DRIFT", "TIE-FLIP", "WRONG")
    assert {*SEVERITY} == {*Verdict}
    assert worst([]) == "NOT-COMPARED"
    for k, verdict in enumerate(SEVERITY):
        assert worst(Comparison("x", one, "") for one in SEVERITY[: k + 1][::-1]) is verdict


def test_exact_things_match_or_are_shown_side_by_side() -> None:
    assert equal("grid", (2, 3), (2, 3), "columns and rows") == Comparison("grid", Verdict.MATCH, "columns and rows")
    apart = Comparison("grid", Verdict.WRONG, "(2, 3); the snapshot has 2x3")
    assert equal("grid", (2, 3), "2x3", "columns and rows", "the snapshot") == apart


@pytest.mark.parametrize(
    ("found", "verdict", "measured"),
    [
        (84, Verdict.MATCH, "84, the prompt's tokens"),
        (83, Verdict.WRONG, "83; expected 84, the prompt's tokens"),
        (None, Verdict.WRONG, "None; expected 84, the prompt's tokens"),
    ],
)
def test_what_is_found_and_what_must_be_are_both_shown(found: object, verdict: Verdict, measured: str) -> None:
    assert as_expected("cache/length", found, 84, "the prompt's tokens") == Comparison(
        "cache/length", verdict, measured
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_is_wrong_or_was_promised_and_not_compared_fails(verdict: Verdict) -> None:
    assert Comparison("x", verdict, "not offered").passes is (verdict not in (Verdict.WRONG, Verdict.NOT_COMPARED))
    allowed = {Reason.NEITHER, Reason.NOT_OFFERED} if verdict is Verdict.NOT_COMPARED else set()
    for reason in Reason:
        passes = Comparison("x", verdict, "", reason=reason).passes
        assert passes is (reason in allowed or verdict not in (Verdict.WRONG, Verdict.NOT_COMPARED))


def test_nothing_to_compare_says_why() -> None:
    found = not_compared("sam", Reason.NOT_GIVEN)
    assert (found.verdict, found.measured, found.reason) == (
        Verdict.NOT_COMPARED,
        str(Reason.NOT_GIVEN),
        "promised by the subject and not given",
    )
    assert not_compared("sam", Reason.NOT_GIVEN, "no seam").measured == "no seam"


@pytest.mark.parametrize(
    ("what", "stage"),
    [("input_ids", "input_ids"), ("sam.page", "sam"), ("sam.crops/3", "sam"), ("result.mmd", "result.mmd")],
)
def test_a_comparison_is_of_a_stage(what: str, stage: str) -> None:
    assert Comparison(what, Verdict.MATCH, "").stage == stage
