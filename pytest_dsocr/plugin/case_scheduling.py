"""A scheduler of pytest-xdist that keeps the tests of one case on one worker, and gives up a case that killed one.

It fixes two faults of its base class. The base class runs a test that killed a worker on one worker after another. It
also waits for ever if the last unit of work is lost, or goes to a new worker.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import to_builtins
from xdist.scheduler import LoadScopeScheduling

from pytest_dsocr.models import PRESET_NAMES, PROMPT_NAMES
from pytest_dsocr.report.case_result import Fault
from pytest_dsocr.report.plan import DIED
from pytest_dsocr.report.worker_report import WorkerReport

CASE = re.compile(
    rf"\[(?P<case>.+-(?:{'|'.join(PRESET_NAMES)})-(?:{'|'.join(PROMPT_NAMES)}|prompt_[0-9a-f]{{8}}))[-\]]"
)
"""Pattern of a case's id in a test's: ``form-gundam-markdown`` in ``test_x[form-gundam-markdown-2]``."""
AHEAD = 2
"""Tests that wait at each worker. A worker starts a test only if it knows the next one, or that there is none."""
KILLED = (
    "its worker process died while this test ran (a crash, too little memory, or an exit of the subject's own); "
    "the case is not tried again; --dsocr-isolate gives the subject a process of its own"
)


def case_of(test: str) -> str | None:
    """Return the id of a test's case, found in the test's id, or None."""
    found = CASE.search(test)
    return found["case"] if found else None


class CaseScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Scheduler with a scope for each case. A test without a case is a scope of its own."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self.given_up: list[str] = []
        """Tests that are not run because their case killed a worker, until they are reported."""

    def remove_node(self, node: Any) -> str | None:
        """Remove a worker. If it died, return its current test and queue its other cases again."""
        left = [
            (scope, {test: False for test, done in unit.items() if not done})
            for scope, unit in self.assigned_work.pop(node).items()
        ]
        unfinished = [(scope, unit) for scope, unit in left if unit]
        if not unfinished:
            return None
        (_, first), *others = unfinished
        killer, *given_up = map(str, first)
        self.given_up += given_up
        for scope, unit in reversed(others):
            self.workqueue[scope] = unit
            self.workqueue.move_to_end(scope, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return killer

    def _split_scope(self, nodeid: str) -> str:
        return case_of(nodeid) or nodeid

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= AHEAD:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()


def report_lost(scheduler: Any, crashitem: str, report: pytest.TestReport) -> Iterator[pytest.TestReport]:
    """Turn pytest-xdist's report of a dead worker into an error of the case, and report the tests that are not run."""
    if case := case_of(crashitem):
        report.longrepr = f"{report.longrepr}: {KILLED}"
        _attach_fault(report, case, KILLED)
    given_up: list[str] = getattr(scheduler, "given_up", [])
    while given_up:
        test = given_up.pop(0)
        path = test.partition("::")[0]
        why = f"not run, because its case killed a worker in {crashitem}"
        lost = pytest.TestReport(test, (path, None, path), {}, "failed", why, DIED)  # type: ignore[arg-type]
        _attach_fault(lost, case_of(test), why)
        yield lost


def _attach_fault(report: pytest.TestReport, case: str | None, why: str) -> None:
    vars(report)["dsocr"] = to_builtins(WorkerReport(fault=Fault(case, None, why, infrastructure=False)))
