"""A case's report: when it passes, and what a reference that lacks something makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.case import make_case
from pytest_dsocr.compare.verdict import NEITHER, Comparison, Verdict, not_compared
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation import Observation
from pytest_dsocr.parity import CaseReport, compare_case
from pytest_dsocr.subjects.session import SessionSubject
from pytest_dsocr.vendor.provenance import Provenance
from suites.contract.pages import write_page
from suites.meta.compare.made import OUTPUT, observation
from suites.meta.vendor.test_provenance import MADE

FINE = Comparison("input_ids", Verdict.MATCH, "all 9", 0.0)
NONE = not_compared("boxes", NEITHER)
LACKING = not_compared("sam.page", "the reference has no such seam")


MADE_IN_FLOAT32 = replace(MADE, dtype="float32")


@dataclass
class Answer:
    """A reference with one answer."""

    seen: Observation
    provenance: Provenance = MADE_IN_FLOAT32

    def observe(self, case: object) -> Observation:
        return self.seen


@pytest.mark.parametrize(
    ("comparisons", "passes", "verdict"),
    [
        ((FINE,), True, Verdict.MATCH),
        ((FINE, NONE), True, Verdict.MATCH),
        ((FINE, replace(FINE, verdict=Verdict.DRIFT, error=1e-6)), True, Verdict.DRIFT),
        ((FINE, replace(FINE, verdict=Verdict.TIE_FLIP)), True, Verdict.TIE_FLIP),
        ((FINE, replace(FINE, verdict=Verdict.WRONG)), False, Verdict.WRONG),
        ((FINE, LACKING), False, Verdict.MATCH),
        ((NONE,), False, Verdict.NOT_COMPARED),
        ((), False, Verdict.NOT_COMPARED),
    ],
)
def test_a_case_passes_where_all_that_a_side_has_was_compared(
    comparisons: tuple[Comparison, ...], passes: bool, verdict: Verdict, tmp_path: Path
) -> None:
    case = make_case(write_page("tiny", tmp_path), "free", "tiny")
    report = CaseReport(case, OUTPUT, OUTPUT, comparisons, 0.0, 0.0)
    assert (report.passes, report.verdict) == (passes, verdict)
    assert sum(report.counts.values()) == len(comparisons)
    assert report.worst_error == max((one.error or 0.0 for one in comparisons), default=0.0)


@pytest.mark.parametrize("lost", ["sam.page", "vision_fusion", "prefill"])
def test_a_seam_that_the_reference_lacks_is_not_compared_and_does_not_pass(
    lost: str, tiny: Session[Any], tmp_path: Path
) -> None:
    subject = SessionSubject(tiny)
    case = make_case(write_page("tiny", tmp_path), "free", "tiny", 4)
    seen, _ = subject.follow(case, replace(observation(), steps=()))
    whole_answer: Any = Answer(seen)
    whole = compare_case(subject, whole_answer, case)
    assert (whole.passes, whole.verdict) == (True, Verdict.MATCH)
    answer: Any = Answer(replace(seen, seams={name: seam for name, seam in seen.seams.items() if name != lost}))
    report = compare_case(subject, answer, case)
    assert not report.passes
    assert [one.what for one in report.comparisons if not one.passes] == [lost]
