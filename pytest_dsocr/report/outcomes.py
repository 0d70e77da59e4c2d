"""Outcome of a test, from the reports of its phases and reruns; outcome of a case, from its tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_dsocr.base.reading import Count
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract.prompt import CHECK_BOXES
from pytest_dsocr.engine.places import family_named
from pytest_dsocr.records.config import MISSING
from pytest_dsocr.records.names import ComparisonKind, ComparisonName, TensorName
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.environment import family_with
from pytest_dsocr.reference.goldens import anchors_file
from pytest_dsocr.report.case_result import CaseResult, Fault
from pytest_dsocr.report.comparison_result import ComparisonResult, OutsideLimits
from pytest_dsocr.report.file import Ending
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.words import rerun
from pytest_dsocr.report.worker_report import FailureOrigin, WorkerReport

if TYPE_CHECKING:
    import pytest


HELD = ("passed", "xpassed", "skipped")
"""Outcomes that become a failure if a comparison of the test does not pass."""
GRAVITY = ("passed", "xpassed", "skipped", "xfailed", "failed", "error")
FAILING = ("failed", "error")
NOT_OURS = "it failed outside of pytest-dsocr's checks; see its output"
AGAIN = "rerun"
"""Outcome that pytest-rerunfailures gives to a failure before it runs the test again."""


class JudgedTest(Struct, kw_only=True, frozen=True):
    """Test in the result."""

    nodeid: str
    file: str | None
    line: Count | None
    outcome: str
    ended_as: Ending
    why: str
    reason: str
    case: str | None
    failed_before: Count
    rerun: str | None
    """Command that runs the test again, if it failed."""
    left_out: str | None
    fault: Fault | None
    cause: FailureOrigin | None = None
    comparisons: list[ComparisonResult]


@dataclass
class TestResult:
    """Result of one test."""

    __test__ = False

    nodeid: str
    outcome: str
    """Member of :data:`GRAVITY`, or an outcome that another pytest plugin made up."""
    reason: str = ""
    sent: WorkerReport = field(default_factory=WorkerReport)
    failed_before: int = 0
    """Number of failures before the last run."""
    place: tuple[str, int] | None = None
    """File and line, counted from 1."""

    def __post_init__(self) -> None:
        if self.outcome in HELD and not all(one.passes for one in self.comparisons):
            self.outcome = "failed"

    @property
    def comparisons(self) -> list[ComparisonResult]:
        """Comparisons that it made, and those that it could not make."""
        return self.sent.comparisons

    @property
    def stood_down(self) -> bool:
        """Whether it compared nothing without an excuse: nothing was missing, and the subject offers it."""
        is_excused = self.sent.left_out or not self.sent.promised
        return self.outcome in ("skipped", "xfailed") and not self.comparisons and not is_excused

    @property
    def has_compared(self) -> bool:
        """Whether it made a comparison: NOT-COMPARED is none."""
        return any(one.verdict != Verdict.NOT_COMPARED for one in self.comparisons)

    @property
    def case_id(self) -> str | None:
        """Id of its case."""
        case, fault = self.sent.case, self.sent.fault
        return case.id if case else fault.case if fault else None

    @property
    def is_flaky(self) -> bool:
        """Whether it passed, but only when it was run again."""
        return bool(self.failed_before) and self.outcome == "passed"

    @property
    def is_odd(self) -> bool:
        """Whether its outcome is unknown to pytest itself, which is not a pass."""
        return self.outcome not in GRAVITY

    @property
    def is_told(self) -> bool:
        """Whether this plugin wrote its failure text."""
        return any((self.sent.cause, self.sent.fault, self.sent.left_out))

    @property
    def ended_as(self) -> Ending:
        """Kind of its failure: a finding about the subject counts more than an error of the machine."""
        if self.outcome not in FAILING:
            return Ending.WRONG if self.is_odd else Ending.PASSES
        wrong = [one.what for one in self.comparisons if one.verdict == Verdict.WRONG]
        of_model = [what for what in wrong if ComparisonName.parse(what).kind is not ComparisonKind.TIME]
        fault = self.sent.fault
        if not of_model and ((fault and fault.infrastructure) or self.sent.left_out in MISSING):
            return Ending.INFRASTRUCTURE
        return Ending.SLOWER if wrong and not of_model and not fault else Ending.WRONG

    @property
    def why(self) -> str:
        """Reason for its failure, one sentence; empty if it did not fail."""
        if self.outcome not in FAILING and not self.is_odd:
            return ""
        fault, made = self.sent.fault, self.comparisons
        wrong = [one for one in made if one.verdict == Verdict.WRONG]
        left = wrong or [one for one in made if not one.passes and not fault]
        if left:
            more = len(wrong) - 1
            return f"{left[0].what}: {left[0].measured}" + (f" (and {more} more)" if more > 0 else "")
        return (fault.why if fault else self.sent.reason or self.reason) or NOT_OURS

    def judged(self, options: Sequence[str], root: Path, *, is_alone: bool = True) -> JudgedTest:
        """Return the test as the run's result has it; unless it fails alone, all tests of its function run again."""
        file, line = self.place or (None, None)
        again = self.nodeid if is_alone else self.nodeid.partition("[")[0]
        return JudgedTest(
            nodeid=self.nodeid,
            file=file,
            line=line,
            outcome="flaky" if self.is_flaky else self.outcome,
            ended_as=self.ended_as,
            why=self.why,
            reason=self.reason,
            case=self.case_id,
            failed_before=self.failed_before,
            rerun=rerun(again, options, root) if self.why else None,
            left_out=self.sent.left_out,
            fault=self.sent.fault,
            cause=self.sent.cause,
            comparisons=self.comparisons,
        )

    def add(self, outcome: str, sent: WorkerReport, reason: str) -> None:
        """Add the report of another phase. The gravest outcome counts; after a retried failure, the new one."""
        self.failed_before += outcome == AGAIN
        if self.outcome == AGAIN:
            self.outcome, self.reason, self.sent = outcome, reason, sent
            return
        if gravity(outcome) > gravity(self.outcome):
            self.outcome, self.reason = outcome, reason
        self.sent = sent.after(self.sent)
        self.__post_init__()

    def hold(self, made: Sequence[ComparisonResult]) -> None:
        """Add comparisons that no report contained; fail the test if one does not pass."""
        more = [one for one in made if one not in self.comparisons]
        self.sent = replace(self.sent, comparisons=[*self.comparisons, *more])
        if self.outcome == "xfailed" and not all(one.passes for one in made):
            self.outcome = "failed"
        self.__post_init__()


def outcome_of(report: pytest.TestReport) -> str:
    """Return the outcome of a phase: an error raised by the subject or the reference is an error, not a failure."""
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    raised = report.when != "call" or getattr(report, "dsocr", {}).get("fault")
    return "error" if report.failed and raised else report.outcome


def why_skipped(report: pytest.TestReport) -> str:
    """Return why a test was skipped, or why it is expected to fail."""
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return reason_of(report) if report.skipped and isinstance(report.longrepr, tuple) else ""


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason that pytest or this plugin gave for a skip."""
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)


def gravity(outcome: str) -> int:
    """Return how grave an outcome is; one that is unknown to pytest is the gravest."""
    return GRAVITY.index(outcome) if outcome in GRAVITY else len(GRAVITY)


def judged_by_tests(case: CaseResult, tests: Sequence[TestResult]) -> CaseResult:
    """Judge a case by its tests, or under the run's own limits if no test compared anything."""
    failed = any(test.outcome in FAILING for test in tests)
    judged = {one.what for test in tests for one in test.comparisons}
    wrong = [one.what for one in case.comparisons if one.verdict == Verdict.WRONG]
    is_left = not judged or any(test.stood_down for test in tests)
    unjudged = [what for what in wrong if what not in judged] if is_left and not failed else []
    passes = not failed and not unjudged and (bool(judged) or case.passes)
    outside = [
        OutsideLimits(one.what, one.verdict, one.measured, _allowing(one.what, tests))
        for one in case.comparisons
        if not one.passes
    ]
    return replace(case, passes=passes, within=case.passes, outside=outside if passes else [], unjudged=unjudged)


def _allowing(what: str, tests: Sequence[TestResult]) -> list[str]:
    return [test.nodeid for test in tests if any(one.what == what and one.passes for one in test.comparisons)]


NO_BOXES = f"no page has a box on either side, so equal boxes prove nothing; {CHECK_BOXES}"


def _changed_files(run: RunSides) -> list[str]:
    """Return the files of a live reference that are not as they were when the vendor's code was recorded."""
    files = run.provenance.vendor_sha256 if run.reference == "live" else {}
    if not files or not (path := anchors_file(family_with(files))).is_file():
        return []
    known = read_json(path).files
    return [name for name, sha256 in files.items() if name not in known or known[name].sha256 != sha256]


def remarks(cases: Sequence[CaseResult], run: RunSides | None) -> Iterator[str]:
    """Yield a sentence for each thing that the cases together cannot show."""
    if cases and not any(sides for case in cases for sides in case.boxes.values()):
        yield NO_BOXES
    for why, stages in not_by_block(cases).items():
        yield f"{listed([*stages])} {why}; what each stage gives is compared"
    if run is None:
        return
    if changed := _changed_files(run):
        what = f"dsocr watch-vendor shows what differs in {listed(changed)}"
        yield f"the live reference's code is not the vendor's; {what}"
    ring = family_named(run.checkpoint).cache.ring
    longest = max((case.tokens["reference"] or 0 for case in cases), default=0)
    if ring and 0 < longest <= ring:
        yield (
            f"the longest page has {count(longest, 'new token')}, so the cache's ring of {ring} was not exercised; "
            f"add a page of more than {ring}, or raise --dsocr-max-new-tokens"
        )


def not_by_block(cases: Sequence[CaseResult]) -> Mapping[str, Collection[str]]:
    """Return the stages with blocks that the subject's calls make incomparable, by the reason."""
    found: dict[str, dict[str, None]] = {}
    for one in (one for case in cases for one in case.comparisons if one.reason == Reason.NOT_BY_BLOCK):
        found.setdefault(one.measured, {})[TensorName.parse(one.what).stage] = None
    return found
