"""The result of one run, gathered on the controller from the reports of its tests, in any order."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import pytest_dsocr
from pytest_dsocr.compare.signs import Reason, Sign
from pytest_dsocr.compare.verdict import SEVERITY, Verdict
from pytest_dsocr.contract.input_names import COMPARED
from pytest_dsocr.foundation.words import count
from pytest_dsocr.judge.config import MISSING
from pytest_dsocr.observation.level import Level
from pytest_dsocr.observation.provenance import versions
from pytest_dsocr.report.ended import OF_PYTEST, Ended, gravest
from pytest_dsocr.report.file import FINISHED, RunIdentity, head, now
from pytest_dsocr.report.judged import JudgedCase, judged_by_tests
from pytest_dsocr.report.payload import (
    CasePayload,
    ComparisonPayload,
    FaultPayload,
    RunPayload,
    SpentPayload,
    TestPayload,
    number,
)
from pytest_dsocr.report.plan import Plan
from pytest_dsocr.report.tested import FAILING, TestResult, gravity, outcome_of, why_skipped
from pytest_dsocr.report.words import by_session

if TYPE_CHECKING:
    import pytest

MOST_NOT_ENDED = 100
"""How many tests that did not end are named in the file."""
NOTHING_COMPARED = "no comparison was made"
OF_INPUTS = frozenset((*COMPARED, "inputs"))
OF_TEXT = frozenset(("read", "text", "spans", "boxes", "result.mmd", "artefacts"))


class Missing(TypedDict):
    """Something that was missing, and whether that was allowed."""

    what: str
    """A word of ``--dsocr-may-miss``."""
    why: str
    tests: int
    """How many tests could not compare."""
    allowed: bool
    """Whether the run allowed it to be missing, so that the tests were skipped and did not fail."""


@dataclass
class RunResult:
    """Every test that was there to compare, and every case, each once.

    Args:
        identity: which run it is.
        plan: what was to be run, and how pytest ended.
    """

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
    spent: dict[str, SpentPayload] = field(default_factory=dict)
    """Where the time of each process went, by its name."""
    _cases: dict[str, CasePayload] = field(default_factory=dict)

    def add_report(self, report: pytest.TestReport) -> None:
        """Take what one of pytest's reports carries as ``dsocr``; one that carries none is not ours."""
        payload: TestPayload | None = getattr(report, "dsocr", None)
        if payload is not None and (report.when == "call" or report.outcome != "passed"):
            self.add(report.nodeid, outcome_of(report), payload, why_skipped(report))
            file, line, _ = report.location
            path, here = self.root / file, Path.cwd()
            near = path.relative_to(here) if path.is_relative_to(here) else path
            self.tests[report.nodeid].place = (near.as_posix(), (line or 0) + 1)

    def add(self, nodeid: str, outcome: str, payload: TestPayload, reason: str = "") -> None:
        """Take what a test told in one of its phases.

        Args:
            nodeid: the test's.
            outcome: as pytest calls it; see :mod:`pytest_dsocr.report.tested`.
            payload: what :mod:`pytest_dsocr.report.payload` gives.
            reason: why it was skipped, or fails as expected.
        """
        self.tests.setdefault(nodeid, TestResult(nodeid, "passed")).add(outcome, payload, reason)
        self.run = self.run or payload.get("run")
        self.perf = self.perf or payload.get("perf")
        self.notes += [note for note in payload.get("notes", []) if note not in self.notes]
        if case := payload.get("case"):
            self.add_case(case)
        if spent := payload.get("spent"):
            self.add_spent(spent["worker"], spent)

    def add_case(self, case: CasePayload) -> None:
        """Take a case; where it was taken already, the graver report counts."""
        self._cases[case["id"]] = max(self._cases.get(case["id"], case), case, key=_severity)

    def add_spent(self, process: str, spent: SpentPayload) -> None:
        """Take where the time of a process went; what it tells last counts."""
        self.spent[process] = max(self.spent.get(process, spent), spent, key=lambda one: one["elapsed_s"])

    def add_test(self, test: TestResult) -> None:
        """Take a test of another run; where it was taken already, the graver outcome counts."""
        self.tests[test.nodeid] = max(self.tests.get(test.nodeid, test), test, key=lambda one: gravity(one.outcome))

    @property
    def cases(self) -> list[JudgedCase]:
        """Each case once, in the run's order, judged by its tests; where two workers report one, the graver report."""
        by_case: dict[str | None, list[TestResult]] = {}
        for test in self.tests.values():
            by_case.setdefault(test.case_id, []).append(test)
        found = [judged_by_tests(case, by_case.get(case["id"], [])) for case in self._cases.values()]
        return sorted(found, key=lambda case: case["place"])

    @property
    def concerned(self) -> bool:
        """Whether any test of the run was there to compare."""
        return bool(self.tests)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each verdict was given."""
        return Counter(one["verdict"] for one in self._compared())

    @property
    def made(self) -> int:
        """Comparisons made: NOT-COMPARED is none."""
        return sum(number for verdict, number in self.counts.items() if verdict != Verdict.NOT_COMPARED)

    @property
    def worst_drift(self) -> float:
        """The largest relative error of a tensor that is inside its tolerance."""
        drifts = (one["error"] for one in self._compared() if one["verdict"] == Verdict.DRIFT)
        return max(map(number, drifts), default=0.0)

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
        """How many tests ended with an outcome that pytest itself does not have, by outcome."""
        return Counter(test.outcome for test in self.tests.values() if test.is_odd)

    @property
    def failing_cases(self) -> list[JudgedCase]:
        """Those of which a test failed."""
        return [case for case in self.cases if not case["passes"]]

    @property
    def drifting_cases(self) -> list[JudgedCase]:
        """Those that pass with an error, the largest first."""
        drifting = [case for case in self.cases if case["passes"] and number(case["worst_error"]) > 0]
        return sorted(drifting, key=lambda case: -number(case["worst_error"]))

    @property
    def suspicious(self) -> list[tuple[str, float]]:
        """Where each case's drift is first larger than that of correct implementations, and how large it is there."""
        found: dict[str, float] = {}
        for case in self.cases:
            for one in case["comparisons"]:
                if Sign.SUSPICIOUS in one["signs"]:
                    found.setdefault(f"{case['id']}, {one['what']}", number(one["error"]))
                    break
        return list(found.items())

    @property
    def not_offered(self) -> dict[str, list[str]]:
        """What the subject does not offer, by the level that would."""
        found: dict[str, list[str]] = {}
        named = (one["what"] for one in self._compared() if one["reason"] == Reason.NOT_OFFERED)
        for what in dict.fromkeys(named):
            found.setdefault(str(level_of_comparison(what)), []).append(what)
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[Missing]:
        """What was missing, each reason once."""
        found: dict[tuple[str, str, bool], int] = {}
        for test in self.tests.values():
            what = test.payload.get("left_out")
            if what in MISSING:
                key = (what, test.payload.get("reason") or test.reason, test.outcome not in FAILING)
                found[key] = found.get(key, 0) + 1
        return [
            {"what": what, "why": why, "tests": tests, "allowed": allowed}
            for (what, why, allowed), tests in found.items()
        ]

    @property
    def faults(self) -> list[FaultPayload]:
        """What raised, each once."""
        faults = (test.payload.get("fault") for test in self.tests.values())
        by_content = {(one["case"], one["stage"], one["why"]): one for one in faults if one}
        return list(by_content.values())

    @property
    def skips(self) -> Mapping[str, int]:
        """How many tests were skipped, by reason, without those for which something was missing or not offered."""
        skipped = (test for test in self.tests.values() if test.outcome == "skipped" and not test.comparisons)
        return Counter(test.reason for test in skipped if test.payload.get("left_out") not in MISSING)

    @property
    def known_failures(self) -> Mapping[str, int]:
        """How many tests failed as expected, by reason."""
        return Counter(test.reason for test in self.tests.values() if test.outcome == "xfailed")

    @property
    def promised(self) -> bool:
        """Whether any test was to compare, and not only to assert something of its own."""
        return any(test.payload.get("promised", True) for test in self.tests.values())

    @property
    def why_not(self) -> Sequence[str]:
        """Why the run does not pass; nothing where it does.

        It passes where pytest's own exit status is 0, every test that was planned has ended, and something was
        compared.
        """
        return [*([] if self.made else [NOTHING_COMPARED]), *self._in_the_way]

    @property
    def _in_the_way(self) -> Iterator[str]:
        """Why it does not pass, whether or not anything was compared."""
        if self.failing:
            yield f"{len(self.failing)} of {count(len(self.tests), 'test')} failed"
        for word, tests in self.odd.items():
            yield f"{count(tests, 'test')} ended as {word!r}"
        yield from self.plan.why_not(failing=bool(self.failing))

    @property
    def ended_as(self) -> Ended:
        """How the run ended; where a test of ours found the model wrong, it is that, whatever else happened."""
        if not self.why_not:
            return Ended.PASSES
        if ended := OF_PYTEST.get(self.plan.exit_status or 0):
            return ended
        found = [test.ended_as for test in self.tests.values() if test.ended_as is not Ended.PASSES]
        if self.plan.problems or (self.missing and not self.made):
            found.append(Ended.INFRASTRUCTURE)
        ended = Ended.WRONG if self.plan.others_failed else gravest(found)
        return ended if ended is not Ended.SLOWER or self.plan.is_whole else Ended.WRONG

    @property
    def fails(self) -> bool:
        """Whether pytest is to fail: tests that only assert something of their own may well have compared nothing."""
        return self.concerned and (any(self._in_the_way) or (self.promised and not self.made))

    @property
    def verdict(self) -> str:
        """``passes``, or why not; and whether the session answered for the reference."""
        flaky = f"; {count(len(self.flaky), 'test')} FLAKY" if self.flaky else ""
        return ("; ".join(self.why_not) or f"passes{flaky}") + by_session(self.cases)

    @cached_property
    def ended(self) -> str:
        """When it was first told as a whole; each file and summary says the same."""
        return now()

    def to_json(self) -> dict[str, Any]:
        """Give the whole result as JSON values."""
        return {
            **head(self.identity, FINISHED, self.ended),
            "pytest_dsocr": pytest_dsocr.__version__,
            "verdict": self.verdict,
            "passes": not self.why_not,
            "ended_as": self.ended_as,
            "exit_status": self.plan.exit_status,
            "planned": len(self.plan.planned),
            "not_ended": self.plan.not_ended[:MOST_NOT_ENDED],
            "uncollected": self.plan.uncollected,
            "others_failed": self.plan.others_failed,
            "comparisons": self.made,
            "counts": {str(verdict): self.counts.get(verdict, 0) for verdict in SEVERITY[::-1]},
            "run": self.run,
            "perf": self.perf,
            "spent": [self.spent[name] for name in sorted(self.spent)],
            "environment": {"platform": platform.platform(), "versions": versions()},
            "not_offered": self.not_offered,
            "missing": self.missing,
            "faults": self.faults,
            "flaky": [test.nodeid for test in self.flaky],
            "skips": dict(self.skips),
            "known_failures": dict(self.known_failures),
            "notes": self.notes,
            "cases": self.cases,
            "tests": [test.to_json(self.options) for test in self.tests.values()],
        }

    def _compared(self) -> Iterator[ComparisonPayload]:
        for test in self.tests.values():
            yield from test.comparisons


def level_of_comparison(what: str) -> Level:
    """Give the level at which a subject offers ``what``."""
    if what.rpartition("/")[2].isdigit():  # a block or a layer, such as sam.page/3
        return Level.MODULES
    if what in OF_TEXT:
        return Level.TEXT
    return Level.INPUTS if what in OF_INPUTS else Level.STAGES


def _severity(case: CasePayload) -> tuple[bool, int]:
    return not case["passes"], SEVERITY.index(Verdict(case["verdict"]))
