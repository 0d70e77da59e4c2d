"""Reports made up for tests: an exchange of two equal sides, payloads as workers send them, and results of these."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from msgspec import convert, structs, to_builtins
from PIL import Image

from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.plugin.options import OPTIONS
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Config, Level
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.comparison_result import ComparisonResult
from pytest_dsocr.report.file import RunIdentity
from pytest_dsocr.report.outcomes import TestResult
from pytest_dsocr.report.plan import Plan
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.worker_report import FailureOrigin, WorkerReport
from pytest_dsocr.timing.statistics import Judgement
from tests.compare.made import answer, observation
from tests.plugin.standin import Reference

LIMITS = tolerances("float32")
MATCH = Comparison("input_ids", Verdict.MATCH, "all 702")
DRIFT = Comparison("sam.page", Verdict.DRIFT, "relative error 3.2e-07 (allowed 1e-04)", 3.2e-7)
RIGHT = {"passes": True, "first_wrong": None}
"""Fields of a case that is right."""
WRONG = Comparison(
    "clip.page",
    Verdict.WRONG,
    "relative error 7.1e-01 (allowed 1e-04)",
    0.71,
    ("mean      0.0123      0.0456 (reference)", "64 of 64 sampled values differ, at most by 1.5"),
)
MADE = replace(
    Reference().provenance,
    checkpoint_sha256="a" * 64,
    vendor_sha256={"modeling_deepseekocr.py": "5835e0b9e194" + "0" * 52},
    resampling=resampling(),
    versions={"torch": "2.13.0"},
)


def config(**changes: Any) -> Config:
    """Return the run's choices if a user sets no option but ``changes``."""
    given: dict[str, Any] = {option.name: option.value_if_unset for option in OPTIONS}
    given |= {"golden": Path("golden"), "out": Path("dsocr-out"), "given_by": {}}
    return Config(**{**given, **changes})


def recorded() -> RecordedReference:
    """Return a recording that has only a provenance."""
    folder: Any = SimpleNamespace(provenance=MADE, folder=Path("golden/vendor/mini/cpu-float32-eager"))
    return RecordedReference(folder)


def exchange(folder: Path, findings: tuple[str, ...] = (), **changes: Any) -> CaseRun:
    """Return a case with its page in ``folder``; the subject says the reference's, but for ``changes``."""
    page = folder / "page.png"
    Image.new("RGB", (300, 400), "white").save(page)
    expected = observation()
    return CaseRun(
        make_case(page, "free", "tiny", family=DEEPSEEK_OCR), answer(expected, **changes), expected, 0.25, 1.5, findings
    )


def report(folder: Path, *comparisons: Comparison, limits: Tolerances = LIMITS, **said: Any) -> CaseReport:
    """Return the report of a judged case, or of the given comparisons."""
    found = exchange(folder, **said)
    return CaseReport(found, comparisons, limits) if comparisons else judge(found, limits)


def run_payload(**changes: Any) -> RunSides:
    return structs.replace(RunSides.of(config(), recorded(), Level.STAGES), **changes)


def case_payload(case_id: str = "page-tiny-free", *comparisons: Comparison, **changes: Any) -> CaseResult:
    """Return the result of a page that is right, with the given comparisons instead of its own."""
    reported = [ComparisonResult.of(one) for one in comparisons or (MATCH,)]
    own = {"id": case_id, "counts": {"MATCH": len(reported)}, "compression": None, "picture": f"pages/{case_id}.jpg"}
    given = {**own, "comparisons": reported, **changes}
    return convert({**to_builtins(_right_case()), **to_builtins(given)}, CaseResult)


@cache
def _right_case() -> CaseResult:
    with TemporaryDirectory() as folder:
        return CaseResult.of(report(Path(folder), MATCH))


def payload(*comparisons: Comparison, **changes: Any) -> WorkerReport:
    """Return the findings that a worker sends of a test that made ``comparisons``."""
    made = [ComparisonResult.of(one) for one in comparisons]
    return convert(to_builtins({"comparisons": made, **changes}), WorkerReport)


GUESS = {"what": "clip.page", "why": "a guess", "mistakes": []}
FAULT = {"case": "b", "stage": "prefill", "why": "the subject's prefill raised; see there", "infrastructure": False}
SLOW = Comparison("perf/decode", Verdict.WRONG, "1.31 times the baseline")
SLOWER = ("failed", payload(SLOW))
LOST = ("error", payload(fault={**FAULT, "infrastructure": True}))
MISSING = ("failed", payload(left_out="recording"))
IDENTITY = RunIdentity("1f", "2026-11-22T04:00:00+00:00", "abc-dirty", "pytest suites")
Ended = tuple[str, WorkerReport]
"""A test's outcome and payload."""


def new_result() -> RunResult:
    """Return the result of a run of which nothing is known yet."""
    made = RunResult(IDENTITY, Plan())
    made.ended = "2026-11-22T04:05:00+00:00"
    return made


def result(*tests: Ended, reason: str = "") -> RunResult:
    """Return the result of tests with an outcome and a payload each."""
    made = new_result()
    made.plan.exit_status = 0
    for k, (outcome, message) in enumerate(tests):
        made.add(f"test_case.py::test[{k}]", outcome, message, reason)
    return made


def night(*tests: Ended, **changes: Any) -> dict[str, Any]:
    """Return a finished run as JSON values; its first test names the comparisons."""
    first, *others = tests
    made = result((first[0], structs.replace(first[1], run=run_payload())), *others)
    made.plan.exit_status = int(bool(made.failing))
    return {**to_builtins(made.document), **to_builtins(changes)}


RIGHT_CLIP = replace(WRONG, verdict=MATCH.verdict, measured="all")
LEFT_OPEN = not_compared("clip.page", Reason.NOT_GIVEN)
CASE = case_payload("a")


def clip(comparison: Comparison, outcome: str = "passed") -> tuple[Ended, ...]:
    """Two tests of a case, of which the second compares CLIP."""
    return ("passed", payload(MATCH, case=CASE)), (outcome, payload(comparison, case=CASE))


GOOD, BAD = clip(RIGHT_CLIP), clip(WRONG, "failed")
OPEN = (GOOD[0], ("failed", payload(LEFT_OPEN, case=CASE, left_out="recording")))
MEDIANS = {"sam": 12.0, "decode": 17.04, "page": 100.0}


def perf(*judgements: Judgement, **medians_ms: float) -> dict[str, Any]:
    """Return times and counts in the form of ``PerfRun.to_json``."""
    medians, judged = medians_ms or MEDIANS, [one.to_json() for one in judgements]
    return {"median_ms": medians, "judgements": judged, "in_short": [], "roof": None}


def failed(nodeid: str, *wrong: Comparison, **sent: Any) -> TestResult:
    """Return the result of a test that failed by these comparisons."""
    return TestResult(nodeid, "failed", sent=payload(*wrong, **sent))


def shown(what: str, why: str = "", *mistakes: str) -> FailureOrigin:
    """Return the origin that a failed test showed."""
    return FailureOrigin(what, why, [*mistakes])
