"""Tests whose worker died: told as errors of their case, which is tried on no other worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.plugin.xdist.scheduling import case_of
from pytest_dsocr.report.collection import DIED

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import TestPayload

KILLED = (
    "its worker process died while this test ran (a crash, too little memory, or an exit of the subject's own); "
    "the case is not tried again; --dsocr-isolate gives the subject a process of its own"
)


def lost(crashitem: str, report: pytest.TestReport) -> None:
    """Make pytest-xdist's report of the test whose worker died an error of its case, where it is of one."""
    if case := case_of(crashitem):
        report.longrepr = f"{report.longrepr}: {KILLED}"
        _carry(report, case, KILLED)


def given_up(scheduler: Any, crashitem: str) -> Iterator[pytest.TestReport]:
    """Yield a report of each test that a scheduler of ours gave up with the one whose worker died."""
    take = getattr(scheduler, "take_given_up", list)
    for test in take():
        path = test.partition("::")[0]
        why = f"not run, for its case killed a worker in {crashitem}"
        report = pytest.TestReport(test, (path, None, path), {}, "failed", why, DIED)  # type: ignore[arg-type]
        _carry(report, case_of(test), KILLED)
        yield report


def _carry(report: pytest.TestReport, case: str | None, why: str) -> None:
    payload: TestPayload = {
        "comparisons": [],
        "fault": {"case": case, "stage": None, "why": why, "infrastructure": False},
        "promised": True,
    }
    vars(report)["dsocr"] = payload
