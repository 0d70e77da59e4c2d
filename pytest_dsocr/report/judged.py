"""The verdict of a case's own tests: they may allow more or less than the run does, and may not check all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from pytest_dsocr.report.payload import CasePayload
from pytest_dsocr.report.tested import FAILING, TestResult


class Outside(TypedDict):
    """A comparison beyond the run's own limits in a case whose tests passed."""

    what: str
    verdict: str
    measured: str
    allowed_by: list[str]
    """The tests whose own limits allow it; empty where no test of the run checks it."""


class JudgedCase(CasePayload):
    """A case: ``passes`` is the verdict of its tests, ``within`` that of the run's own limits."""

    within: bool
    outside: list[Outside]
    """What lies beyond the run's own limits though the case passes."""
    failed: list[str]
    """Its tests that failed."""


def judged_by_tests(case: CasePayload, tests: Sequence[TestResult]) -> JudgedCase:
    """Judge a case by its tests; where none of them compared anything, by the run's own limits.

    Args:
        case: judged under the run's own limits.
        tests: those of the case.
    """
    failed = [test.nodeid for test in tests if test.outcome in FAILING]
    judged = any(test.comparisons for test in tests)
    passes = not failed and (judged or case["passes"])
    outside = [
        Outside(
            what=one["what"], verdict=one["verdict"], measured=one["measured"], allowed_by=_allowing(one["what"], tests)
        )
        for one in case["comparisons"]
        if not one["passes"]
    ]
    within = case["passes"]
    return {**case, "passes": passes, "within": within, "outside": outside if passes else [], "failed": failed}


def _allowing(what: str, tests: Sequence[TestResult]) -> list[str]:
    return [test.nodeid for test in tests if any(one["what"] == what and one["passes"] for one in test.comparisons)]
