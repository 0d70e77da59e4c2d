"""Why a run does not pass, whatever was compared: what pytest planned, what ended, and how pytest itself did."""

from __future__ import annotations

import pytest

from pytest_dsocr.report.collection import Plan


def ended(status: int | None) -> Plan:
    plan = Plan(exit_status=status)
    plan.add(["a", "b"])
    plan.ended.update(plan.planned)
    return plan


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (pytest.ExitCode.OK, []),
        (pytest.ExitCode.TESTS_FAILED, ["tests failed that do not use pytest-dsocr"]),
        (pytest.ExitCode.INTERRUPTED, ["the run was interrupted"]),
        (pytest.ExitCode.INTERNAL_ERROR, ["pytest had an internal error"]),
        (pytest.ExitCode.USAGE_ERROR, ["pytest refused its arguments"]),
        (pytest.ExitCode.NO_TESTS_COLLECTED, ["no test was run"]),
        (77, ["pytest ended with status 77"]),
        (None, ["the run has not ended"]),
    ],
)
def test_pytest_s_status_is_told_in_words(status: int | None, why: list[str]) -> None:
    assert ended(status).why_not(failing=False) == why


def test_failed_tests_of_ours_explain_its_status_1_and_no_other() -> None:
    assert ended(1).why_not(failing=True) == []
    assert ended(2).why_not(failing=True) == ["the run was interrupted"]


def test_all_reasons_are_told() -> None:
    plan = ended(1)
    plan.uncollected.append("test_a.py")
    plan.problems.append("nothing was compared")
    plan.ended.remove("a")
    assert plan.not_ended == ["a"]
    assert plan.why_not(failing=False) == [
        "1 of 2 planned tests did not end",
        "1 file could not be collected",
        "nothing was compared",
    ]
