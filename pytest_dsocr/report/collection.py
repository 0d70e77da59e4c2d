"""Results of tests, collected on the controller from pytest's reports in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.compare.verdict import SEVERITY
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.outcomes import JudgedCase, TestResult, judged_by_tests, outcome_of, why_skipped
from pytest_dsocr.report.payload import CasePayload, ElapsedPayload, Entry, LeftPayload, RunPayload, TestPayload
from pytest_dsocr.report.plan import Plan

if TYPE_CHECKING:
    import pytest


@dataclass
class Collected:
    """Tests and cases of a run, each once."""

    identity: RunIdentity
    plan: Plan
    tests: dict[str, TestResult] = field(default_factory=dict)
    run: RunPayload | None = None
    perf: Mapping[str, Any] | None = None
    """Times and counts of the subject, if they were measured; see ``PerfRun.to_json``."""
    options: Sequence[str] = ()
    """Typed options of the run, without its positional arguments."""
    root: Path = field(default_factory=Path.cwd)
    """Folder that the files of tests are relative to."""
    notes: list[str] = field(default_factory=list)
    """Other observations, one sentence each."""
    elapsed: dict[str, ElapsedPayload] = field(default_factory=dict)
    """Time of each process by activity."""
    left: LeftPayload = field(default_factory=lambda: LeftPayload(tests=0, of=0, by=[], names=[], listed=[]))
    """Tests that were found and deselected, and the cases that were planned."""
    _cases: dict[str, CasePayload] = field(default_factory=dict)

    def add_report(self, report: pytest.TestReport) -> None:
        """Add the ``dsocr`` payload of one of pytest's reports; ignore a report without one."""
        payload: TestPayload | None = getattr(report, "dsocr", None)
        if payload is not None:
            self.add(report.nodeid, outcome_of(report), payload, why_skipped(report))
            file, line, _ = report.location
            path, here = self.root / file, Path.cwd()
            near = path.relative_to(here) if path.is_relative_to(here) else path
            self.tests[report.nodeid].place = (near.as_posix(), (line or 0) + 1)

    def add(self, nodeid: str, outcome: str, payload: TestPayload, reason: str = "") -> None:
        """Add the payload of one phase of a test, and why it was skipped or failed as expected."""
        self.tests.setdefault(nodeid, TestResult(nodeid, "passed")).add(outcome, payload, reason)
        self.run = self.run or payload.get("run")
        self.perf = self.perf or payload.get("perf")
        self.notes += [note for note in payload.get("notes", []) if note not in self.notes]
        if case := payload.get("case"):
            self.add_case(case)
        if elapsed := payload.get("elapsed"):
            self.add_elapsed(elapsed["worker"], elapsed)

    def hold(self, entries: Sequence[Entry]) -> None:
        """Fail each test with a failed comparison, whatever pytest reported, unless the test is expected to fail.

        Comparisons before a rerun do not count: that test is FLAKY.
        """
        expected = {(one["test"], one["attempt"]) for one in entries if one["expected"]}
        for entry in entries:
            test = self.tests.get(entry["test"]) or TestResult(entry["test"], "passed")
            if (entry["test"], entry["attempt"]) not in expected and entry["attempt"] > test.failed_before:
                self.tests[entry["test"]] = test
                test.hold(entry["comparisons"])

    def add_case(self, case: CasePayload) -> None:
        """Add a case; of two reports of one case, keep the graver."""
        either = (self._cases.get(case["id"], case), case)
        self._cases[case["id"]] = max(either, key=lambda one: (not one["passes"], SEVERITY.index(one["verdict"])))

    def add_elapsed(self, process: str, elapsed: ElapsedPayload) -> None:
        """Add the times of a process; keep its last report."""
        self.elapsed[process] = max(self.elapsed.get(process, elapsed), elapsed, key=lambda one: one["elapsed_s"])

    @property
    def cases(self) -> list[JudgedCase]:
        """Cases in the run's order, judged by their tests."""
        by_case: dict[str | None, list[TestResult]] = {}
        for test in self.tests.values():
            by_case.setdefault(test.case_id or test.payload.get("of_case"), []).append(test)
        found = [judged_by_tests(case, by_case.get(case["id"], [])) for case in self._cases.values()]
        return sorted(found, key=lambda case: case["place"])
