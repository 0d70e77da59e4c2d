"""Results of tests, collected on the controller from pytest's reports in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_dsocr.compare.verdict import SEVERITY
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.outcomes import TestResult, judged_by_tests, outcome_of, why_skipped
from pytest_dsocr.report.plan import Plan
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.worker_report import Deselection, JournalEntry, ProcessTimes, WorkerReport

if TYPE_CHECKING:
    import pytest


@dataclass
class Collected:
    """Tests and cases of a run, each once."""

    identity: RunIdentity
    plan: Plan
    tests: dict[str, TestResult] = field(default_factory=dict)
    run: RunSides | None = None
    perf: dict[str, Any] | None = None
    """Times and counts of the subject, if they were measured; see ``PerfRun.to_json``."""
    options: Sequence[str] = ()
    """Typed options of the run, without its positional arguments."""
    named: Sequence[str] = ()
    """Tests and folders that pytest was given."""
    root: Path = field(default_factory=Path.cwd)
    """Folder that the files of tests are relative to."""
    notes: list[str] = field(default_factory=list)
    """Other observations, one sentence each."""
    elapsed: dict[str, ProcessTimes] = field(default_factory=dict)
    """Time of each process by activity."""
    left: Deselection = field(default_factory=Deselection)
    """Tests that were found and deselected, and the cases that were planned."""
    _cases: dict[str, CaseResult] = field(default_factory=dict)

    def add_report(self, report: pytest.TestReport) -> None:
        """Add what a worker sent with one of pytest's reports, as its ``dsocr``; ignore a report without one."""
        carried = getattr(report, "dsocr", None)
        if carried is not None:
            sent = msgspec.convert(carried, WorkerReport)
            self.add(report.nodeid, outcome_of(report), sent, why_skipped(report))
            file, line, _ = report.location
            path, here = self.root / file, Path.cwd()
            near = path.relative_to(here) if path.is_relative_to(here) else path
            self.tests[report.nodeid].place = (near.as_posix(), (line or 0) + 1)

    def add(self, nodeid: str, outcome: str, sent: WorkerReport, reason: str = "") -> None:
        """Add the findings of one phase of a test, and why it was skipped or failed as expected."""
        self.tests.setdefault(nodeid, TestResult(nodeid, "passed")).add(outcome, sent, reason)
        self.run = self.run or sent.run
        self.perf = self.perf or sent.perf
        self.notes += [note for note in sent.notes if note not in self.notes]
        if sent.case:
            self.add_case(sent.case)
        if sent.elapsed:
            self.add_elapsed(sent.elapsed)

    def hold(self, entries: Sequence[JournalEntry]) -> None:
        """Fail each test with a failed comparison, whatever pytest reported, unless the test is expected to fail.

        Comparisons before a rerun do not count: that test is FLAKY.
        """
        expected = {(one.test, one.attempt) for one in entries if one.expected}
        for entry in entries:
            test = self.tests.get(entry.test) or TestResult(entry.test, "passed")
            if (entry.test, entry.attempt) not in expected and entry.attempt > test.failed_before:
                self.tests[entry.test] = test
                test.hold(entry.comparisons)

    def add_case(self, case: CaseResult) -> None:
        """Add a case; of two reports of one case, keep the graver."""
        either = (self._cases.get(case.id, case), case)
        self._cases[case.id] = max(either, key=lambda one: (not one.passes, SEVERITY.index(one.verdict)))

    def add_elapsed(self, elapsed: ProcessTimes) -> None:
        """Add the times of a process; keep its last report."""
        either = (self.elapsed.get(elapsed.worker, elapsed), elapsed)
        self.elapsed[elapsed.worker] = max(either, key=lambda one: one.elapsed_s)

    @property
    def cases(self) -> list[CaseResult]:
        """Cases in the run's order, judged by their tests."""
        by_case: dict[str | None, list[TestResult]] = {}
        for test in self.tests.values():
            by_case.setdefault(test.case_id or test.sent.of_case, []).append(test)
        found = [judged_by_tests(case, by_case.get(case.id, [])) for case in self._cases.values()]
        return sorted(found, key=lambda case: case.place)
