"""Results of tests, collected on the controller from pytest's reports in any order, and totals over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from pytest_dsocr.compare.verdict import LEFT_OUT, SEVERITY, Reason, Symptom, Verdict
from pytest_dsocr.models.spec import PREPROCESS, TOKENIZER
from pytest_dsocr.records.config import MISSING, Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.cause import FailureCause
from pytest_dsocr.report.causes import causes_of
from pytest_dsocr.report.comparison_result import ComparisonResult, number
from pytest_dsocr.report.document import Looser, Missing
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.order import OF_TEXT
from pytest_dsocr.report.outcomes import FAILING, TestResult, judged_by_tests, outcome_of, why_skipped
from pytest_dsocr.report.plan import Plan
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.separating import separation
from pytest_dsocr.report.strip import OUTPUT, stage_of
from pytest_dsocr.report.worker_report import Deselection, JournalEntry, ProcessTimes, WorkerReport

if TYPE_CHECKING:
    import pytest

LEVELS = tuple(map(str, Level))
LEVEL_OF = {OUTPUT: Level.TEXT, PREPROCESS: Level.INPUTS, TOKENIZER: Level.INPUTS}
"""Levels that include the stages before and after the model; all other stages are of L2."""


@dataclass
class Collected:
    """Tests and cases of a run, each once, and totals over them."""

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
        if case := sent.case:  # of two reports of one case, the graver
            either = (self._cases.get(case.id, case), case)
            self._cases[case.id] = max(either, key=lambda one: (not one.passes, SEVERITY.index(one.verdict)))
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

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of comparisons by verdict."""
        return Counter(one.verdict for one in self._compared())

    @property
    def why_not_made(self) -> Mapping[str, int]:
        """Number of comparisons that are NOT-COMPARED, by reason, without those that the subject does not offer."""
        left = (one for one in self._compared() if one.verdict == Verdict.NOT_COMPARED)
        return Counter(str(one.reason) for one in left if one.reason not in LEFT_OUT)

    @property
    def made(self) -> int:
        """Number of comparisons made, without those that are NOT-COMPARED."""
        return sum(number for verdict, number in self.counts.items() if verdict != Verdict.NOT_COMPARED)

    @property
    def has_compared(self) -> bool:
        """Whether a test that is expected to pass compared anything."""
        return any(test.has_compared for test in self.tests.values() if test.outcome != "xfailed")

    @property
    def worst_drift(self) -> tuple[float, str]:
        """Largest relative error inside a tolerance, and the suite that measured it."""
        drifts = (
            (number(one.error), suite_of(test))
            for test in self.tests.values()
            for one in test.comparisons
            if one.verdict == Verdict.DRIFT
        )
        return max(drifts, default=(0.0, ""))

    @property
    def suites(self) -> list[str]:
        """The suites whose tests compared anything."""
        return sorted({suite_of(test) for test in self.tests.values() if test.has_compared})

    @property
    def failing(self) -> list[TestResult]:
        """The tests that failed."""
        return [test for test in self.tests.values() if test.outcome in FAILING]

    @property
    def flaky(self) -> list[TestResult]:
        """The tests that passed only when they were run again."""
        return [test for test in self.tests.values() if test.is_flaky]

    @property
    def odd(self) -> Mapping[str, int]:
        """Number of tests by outcome, for outcomes that are unknown to pytest."""
        return Counter(test.outcome for test in self.tests.values() if test.is_odd)

    @property
    def causes(self) -> list[FailureCause]:
        """The failures by their cause."""
        found = causes_of(self.cases, [test for test in self.tests.values() if test.why])
        for one in found:
            if one.cases and one.what in OF_TEXT and not (one.proven or one.is_state):
                one.separated = separation(one, self.cases, self.tests.values())
        return found

    @property
    def suspicious(self) -> list[tuple[str, float]]:
        """First place in each case with a drift above that of correct implementations, and the drift."""
        found = [
            (case.id, next((one for one in case.comparisons if Symptom.SUSPICIOUS in one.signs), None))
            for case in self.cases
        ]
        return [(f"{name}, {one.what}", number(one.error)) for name, one in found if one]

    @property
    def not_looked_at(self) -> str:
        """Sentence about stages that the subject's level hides; empty if nothing was compared."""
        level = self.run.level if self.run else None
        return Level(int(level[1:])).hides if level else ""

    @property
    def not_offered(self) -> dict[str, list[str]]:
        """Comparisons that the subject does not offer, by the level that includes them."""
        found: dict[str, list[str]] = {}
        named = (one.what for one in self._compared() if one.reason == Reason.NOT_OFFERED)
        for what in dict.fromkeys(named):
            is_block = TensorName.parse(what).block is not None
            level = Level.MODULES if is_block else LEVEL_OF.get(stage_of(what, ""), Level.STAGES)
            found.setdefault(str(level), []).append(what)
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[Missing]:
        """Missing things, each reason once."""
        found = Counter(
            (what, test.sent.reason or test.reason, test.outcome not in FAILING)
            for test in self.tests.values()
            if (what := test.sent.left_out) in MISSING and what
        )
        return [Missing(what, why, tests, allowed) for (what, why, allowed), tests in found.items()]

    @property
    def skips(self) -> Mapping[str, int]:
        """Number of skipped tests by reason, without those that :attr:`missing` and :attr:`above` count."""
        skipped = (test for test in self.tests.values() if test.outcome == "skipped" and not test.comparisons)
        return Counter(test.reason for test in skipped if test.sent.left_out not in (*MISSING, *LEVELS))

    @property
    def above(self) -> Mapping[str, int]:
        """Number of tests that were skipped for a level that the subject does not offer, by level."""
        needed = Counter(test.sent.left_out or "" for test in self.tests.values())
        return {level: needed[level] for level in LEVELS if needed[level]}

    @property
    def known_failures(self) -> Mapping[str, int]:
        """Number of tests that failed as expected, by reason."""
        return Counter(test.reason for test in self.tests.values() if test.outcome == "xfailed")

    @property
    def spending(self) -> Spending | None:
        """Losses under the budget; None if no budget is set."""
        return Spending.of(self.cases)

    @property
    def promised(self) -> bool:
        """Whether any test was meant to compare, and not only to make its own assertions."""
        return any(test.sent.promised for test in self.tests.values())

    @property
    def not_compared(self) -> Sequence[str]:
        """Planned cases without any comparison, if other cases have some."""
        made = {test.case_id for test in self.tests.values() if test.has_compared}
        found = [case for case, *_ in self.left.listed]
        return [case for case in found if case not in made] if made & {*found} else []

    @property
    def looser(self) -> dict[str, Looser]:
        """Limits above the usual ones, by name."""
        found: dict[str, Looser] = {}
        for test in self.tests.values():
            for name, (allowed, usual, by) in test.sent.looser.items():
                own = Looser(allowed, usual, by, 0)
                one = max(found.get(name, own), own, key=lambda one: one.allowed)
                found[name] = replace(one, tests=found.get(name, own).tests + 1)
        return found

    def _compared(self) -> Iterator[ComparisonResult]:
        for test in self.tests.values():
            yield from test.comparisons


def suite_of(test: TestResult) -> str:
    """Return the folder of a test's file, or the file if it has none."""
    path = PurePosixPath(test.nodeid.partition("::")[0])
    folder = PurePosixPath(test.place[0]).parent if test.place else path.parent
    is_installed = folder.parent.name == "suites"  # the id of an installed suite's test may be its file's name alone
    return (folder if is_installed else path.parent).name or path.name
