"""What the reports of tests carried, collected on the controller in any order."""

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
    """Every test that was there to compare, and every case, each once, as they come."""

    identity: RunIdentity
    plan: Plan
    tests: dict[str, TestResult] = field(default_factory=dict)
    run: RunPayload | None = None
    perf: Mapping[str, Any] | None = None
    """Times and counts of the subject, where they were taken: see ``PerfRun.to_json``."""
    options: Sequence[str] = ()
    """Those of the run as they were typed, without its positional arguments."""
    root: Path = field(default_factory=Path.cwd)
    """What the places of tests are relative to."""
    notes: list[str] = field(default_factory=list)
    """What else was noticed, a sentence each."""
    elapsed: dict[str, ElapsedPayload] = field(default_factory=dict)
    """Where the time of each process went, by its name."""
    left: LeftPayload = field(default_factory=lambda: LeftPayload(tests=0, of=0, by=[], names=[], listed=[]))
    """Which tests were found and not to be run, and which pages were to be read."""
    _cases: dict[str, CasePayload] = field(default_factory=dict)

    def add_report(self, report: pytest.TestReport) -> None:
        """Take what one of pytest's reports carries as ``dsocr``; one that carries none is not ours."""
        payload: TestPayload | None = getattr(report, "dsocr", None)
        if payload is not None:
            self.add(report.nodeid, outcome_of(report), payload, why_skipped(report))
            file, line, _ = report.location
            path, here = self.root / file, Path.cwd()
            near = path.relative_to(here) if path.is_relative_to(here) else path
            self.tests[report.nodeid].place = (near.as_posix(), (line or 0) + 1)

    def add(self, nodeid: str, outcome: str, payload: TestPayload, reason: str = "") -> None:
        """Take what a test sent in one of its phases, and why it was skipped or fails as expected."""
        self.tests.setdefault(nodeid, TestResult(nodeid, "passed")).add(outcome, payload, reason)
        self.run = self.run or payload.get("run")
        self.perf = self.perf or payload.get("perf")
        self.notes += [note for note in payload.get("notes", []) if note not in self.notes]
        if case := payload.get("case"):
            self.add_case(case)
        if elapsed := payload.get("elapsed"):
            self.add_elapsed(elapsed["worker"], elapsed)

    def hold(self, entries: Sequence[Entry]) -> None:
        """Fail each test of which a comparison does not pass and that is no expected failure, whatever was reported.

        What a test compared before it was run again does not count: it is FLAKY.
        """
        expected = {(one["test"], one["attempt"]) for one in entries if one["expected"]}
        for entry in entries:
            test = self.tests.get(entry["test"]) or TestResult(entry["test"], "passed")
            if (entry["test"], entry["attempt"]) not in expected and entry["attempt"] > test.failed_before:
                self.tests[entry["test"]] = test
                test.hold(entry["comparisons"])

    def add_case(self, case: CasePayload) -> None:
        """Take a case; where it was taken already, the graver report counts."""
        either = (self._cases.get(case["id"], case), case)
        self._cases[case["id"]] = max(either, key=lambda one: (not one["passes"], SEVERITY.index(one["verdict"])))

    def add_elapsed(self, process: str, elapsed: ElapsedPayload) -> None:
        """Take where the time of a process went; its last report counts."""
        self.elapsed[process] = max(self.elapsed.get(process, elapsed), elapsed, key=lambda one: one["elapsed_s"])

    @property
    def cases(self) -> list[JudgedCase]:
        """Each case once, in the run's order, judged by its tests; where two workers report one, the graver report."""
        by_case: dict[str | None, list[TestResult]] = {}
        for test in self.tests.values():
            by_case.setdefault(test.case_id or test.payload.get("of_case"), []).append(test)
        found = [judged_by_tests(case, by_case.get(case["id"], [])) for case in self._cases.values()]
        return sorted(found, key=lambda case: case["place"])
