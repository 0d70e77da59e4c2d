"""The cases of a run, judged by their own tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from pytest_dsocr.report.outcomes import FAILING, TestResult
from pytest_dsocr.report.payload import CasePayload


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
    """Comparisons beyond the run's own limits, though the case passes."""


def judged_by_tests(case: CasePayload, tests: Sequence[TestResult]) -> JudgedCase:
    """Judge a case by its tests; where none of them compared anything, as it was judged under the run's own limits."""
    failed = any(test.outcome in FAILING for test in tests)
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
    return {**case, "passes": passes, "within": within, "outside": outside if passes else []}


def _allowing(what: str, tests: Sequence[TestResult]) -> list[str]:
    return [test.nodeid for test in tests if any(one["what"] == what and one["passes"] for one in test.comparisons)]


NO_BOXES = "no page has a box on either side: that boxes match shows nothing; add a page that has some"


def remarks(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield what the cases as a whole do not show, a sentence each."""
    if cases and all(case["boxes"] == {"reference": 0, "subject": 0} for case in cases):
        yield NO_BOXES
