"""What a comparison can say, which of several is the gravest, and with which of them a run may pass."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import SEVERITY, Comparison, Verdict, as_expected, equal, worst


def test_the_gravest_of_several_counts() -> None:
    assert SEVERITY == ("NOT-COMPARED", "MATCH", "DRIFT", "TIE-FLIP", "WRONG")
    assert worst([]) == "NOT-COMPARED"
    for k, verdict in enumerate(SEVERITY):
        assert worst(Comparison("x", one, "") for one in SEVERITY[: k + 1][::-1]) is verdict


def test_exact_things_match_or_are_shown_side_by_side() -> None:
    for found, verdict in ((84, Verdict.MATCH), (83, Verdict.WRONG), (None, Verdict.WRONG)):
        one, other = as_expected("length", found, 84, "the prompt's"), equal("length", found, 84, "the prompt's")
        assert one.verdict is other.verdict is verdict
        assert verdict is Verdict.MATCH or (str(found) in one.measured and "84" in one.measured)
        assert verdict is Verdict.MATCH or (str(found) in other.measured and "84" in other.measured)


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_is_wrong_or_was_promised_and_not_compared_fails(verdict: Verdict) -> None:
    allowed = {Reason.NEITHER, Reason.NOT_OFFERED} if verdict is Verdict.NOT_COMPARED else set()
    for reason in (None, *Reason):
        passes = Comparison("x", verdict, "", reason=reason).passes
        assert passes is (reason in allowed or verdict not in (Verdict.WRONG, Verdict.NOT_COMPARED))
