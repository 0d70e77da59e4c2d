"""A case as its own tests judge it: they may allow more than the run does, or less, and may not look at all of it."""

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
    """The tests that allow it by limits of their own; empty where no test of the run looked at it."""


class ColouredCase(CasePayload):
    """A case, of which ``passes`` is what its tests say; under the run's own limits it is ``within``."""

    within: bool
    outside: list[Outside]
    """What lies beyond the run's own limits though the case passes."""
    failed: list[str]
    """Its tests that failed."""


def coloured(case: CasePayload, tests: Sequence[TestResult]) -> ColouredCase:
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
