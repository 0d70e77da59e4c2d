"""One run's result, gathered on the controller from what the tests told, in whatever order they did."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import pytest_dsocr
from pytest_dsocr.compare.verdict import NOT_OFFERED, SEVERITY, Verdict
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.option_values import MISSING
from pytest_dsocr.report.payload import (
    CasePayload,
    ComparisonPayload,
    FaultPayload,
    RunPayload,
    TestPayload,
    number,
)
from pytest_dsocr.report.words import by_session, count
from pytest_dsocr.subjects.protocol import Level
from pytest_dsocr.vendor.provenance import versions
from pytest_dsocr.vendor.recorded.sealed import write_whole

if TYPE_CHECKING:
    import pytest

FORMAT = 1
JSON_NAME = "dsocr.json"
GRAVITY = ("passed", "xpassed", "skipped", "xfailed", "failed", "error")
FAILING = ("failed", "error")
OF_INPUTS = frozenset(
    ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes", "inputs")
)
OF_TEXT = frozenset(("read", "text", "spans", "boxes", "result.mmd", "artefacts"))


class Missing(TypedDict):
    """Something that was not there, and what came of it."""

    what: str
    """A word of ``--dsocr-may-miss``."""
    why: str
    tests: int
    """How many tests could not compare."""
    allowed: bool
    """Whether the run said that it may be missing: the tests were skipped, and did not fail."""


@dataclass
class TestResult:
    """What became of one test."""

    __test__ = False

    nodeid: str
    outcome: str
    reason: str = ""
    payload: TestPayload = field(default_factory=lambda: TestPayload())

    @property
    def comparisons(self) -> list[ComparisonPayload]:
        """Those that it made, and those that it could not."""
        return self.payload.get("comparisons", [])


@dataclass
class RunResult:
    """Every test that was there to compare, and every case, each once.

    Args:
        command: as the user typed it.
    """

    command: str = ""
    tests: dict[str, TestResult] = field(default_factory=dict)
    run: RunPayload | None = None
    _cases: dict[str, CasePayload] = field(default_factory=dict)

    def add_report(self, report: pytest.TestReport) -> None:
        """Take what one of pytest's reports carries as ``dsocr``; one that carries none is not ours."""
        payload: TestPayload | None = getattr(report, "dsocr", None)
        if payload is not None and (report.when == "call" or report.outcome != "passed"):
            self.add(report.nodeid, _outcome(report), payload, _reason(report))

    def add(self, nodeid: str, outcome: str, payload: TestPayload, reason: str = "") -> None:
        """Take what a test told; of several phases of one test the gravest outcome counts.

        Args:
            nodeid: the test's.
            outcome: one of :data:`GRAVITY`.
            payload: what :mod:`pytest_dsocr.report.payload` gives.
            reason: why it was skipped, or fails as expected.
        """
        known = self.tests.setdefault(nodeid, TestResult(nodeid, outcome, reason))
        if GRAVITY.index(outcome) > GRAVITY.index(known.outcome):
            known.outcome, known.reason = outcome, reason
        known.payload = {**known.payload, **payload}
        self.run = self.run or payload.get("run")
        if case := payload.get("case"):
            self._cases[case["id"]] = max(self._cases.get(case["id"], case), case, key=_severity)

    @property
    def cases(self) -> list[CasePayload]:
        """In the run's order, each once; of two workers that disagree about one, the graver report."""
        return sorted(self._cases.values(), key=lambda case: case["place"])

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
    def failing_cases(self) -> list[CasePayload]:
        """Those that do not pass under the run's limits."""
        return [case for case in self.cases if not case["passes"]]

    @property
    def drifting_cases(self) -> list[CasePayload]:
        """Those that pass with an error, the largest first."""
        drifting = [case for case in self.cases if case["passes"] and number(case["worst_error"]) > 0]
        return sorted(drifting, key=lambda case: -number(case["worst_error"]))

    @property
    def not_offered(self) -> dict[str, list[str]]:
        """What the subject does not offer, by the level that would."""
        found: dict[str, list[str]] = {}
        named = (one["what"] for one in self._compared() if one["measured"] == NOT_OFFERED)
        for what in dict.fromkeys(named):
            found.setdefault(str(level_of_comparison(what)), []).append(what)
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[Missing]:
        """What was not there, each reason once."""
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
        """How many tests were skipped, by reason; but for those that tell what was missing, or not offered."""
        skipped = (test for test in self.tests.values() if test.outcome == "skipped" and not test.comparisons)
        return Counter(test.reason for test in skipped if test.payload.get("left_out") not in MISSING)

    @property
    def known_failures(self) -> Mapping[str, int]:
        """How many tests failed as they are known to, by reason."""
        return Counter(test.reason for test in self.tests.values() if test.outcome == "xfailed")

    @property
    def promised(self) -> bool:
        """Whether any test was to compare, and not only to assert something of its own."""
        return any(test.payload.get("promised", True) for test in self.tests.values())

    @property
    def why_not(self) -> list[str]:
        """Why the run does not pass; nothing where it does."""
        reasons = []
        if not self.made and self.promised:
            reasons.append("no comparison was made")
        if self.failing:
            reasons.append(f"{len(self.failing)} of {count(len(self.tests), 'test')} failed")
        return reasons

    @property
    def verdict(self) -> str:
        """``passes``, or why not; and by whose word, where that is the session's."""
        return ("; ".join(self.why_not) or "passes") + by_session(self.cases)

    def to_json(self) -> dict[str, Any]:
        """Give the whole result as JSON values."""
        return {
            "format": FORMAT,
            "pytest_dsocr": pytest_dsocr.__version__,
            "verdict": self.verdict,
            "passes": not self.why_not,
            "comparisons": self.made,
            "counts": {str(verdict): self.counts.get(verdict, 0) for verdict in SEVERITY[::-1]},
            "run": self.run,
            "environment": {"command": self.command, "platform": platform.platform(), "versions": versions()},
            "not_offered": self.not_offered,
            "missing": self.missing,
            "faults": self.faults,
            "skips": dict(self.skips),
            "known_failures": dict(self.known_failures),
            "cases": self.cases,
            "tests": [_test_as_json(test) for test in self.tests.values()],
        }

    def write(self, folder: Path) -> Path:
        """Write ``dsocr.json`` into ``folder``, whole or not at all, and give the file.

        Raises:
            DsocrError: where the disk does not take it.
        """
        content = json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"
        _make(folder)
        write_whole(folder / JSON_NAME, content.encode())
        return folder / JSON_NAME

    def _compared(self) -> Iterator[ComparisonPayload]:
        for test in self.tests.values():
            yield from test.comparisons


def level_of_comparison(what: str) -> Level:
    """Give the level at which a subject shows what is compared as ``what``."""
    if what.rpartition("/")[2].isdigit():  # a block or a layer, such as sam.page/3
        return Level.MODULES
    if what in OF_TEXT:
        return Level.TEXT
    return Level.INPUTS if what in OF_INPUTS else Level.STAGES


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DsocrError(f"{folder} cannot be made ({error.strerror}); give another folder") from error


def _severity(case: CasePayload) -> tuple[bool, int]:
    return not case["passes"], SEVERITY.index(Verdict(case["verdict"]))


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    return "error" if report.failed and report.when != "call" else report.outcome


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return ""


def _test_as_json(test: TestResult) -> dict[str, Any]:
    case = test.payload.get("case")
    return {
        "nodeid": test.nodeid,
        "outcome": test.outcome,
        "reason": test.reason,
        "case": case and case["id"],
        "comparisons": test.comparisons,
    }
