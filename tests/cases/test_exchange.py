"""One case put to both sides and judged: when it passes, and how often it is judged."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, Exchange, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, not_compared
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.config import SubjectFaultError
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from tests.compare.made import answer, observation
from tests.report.made import MADE
from tests.subjects.seen import seen

FINE = Comparison("input_ids", Verdict.MATCH, "all 9", 0.0)
NONE = not_compared("boxes", Reason.NEITHER)
LEFT = not_compared("sam.page", Reason.NOT_OFFERED)
LACKING = not_compared("sam.page", Reason.NOT_IN_REFERENCE)
LIMITS = tolerances("float32")


@dataclass
class Reference:
    """A reference with one answer, of which is asked how it was made."""

    said: Observation | None = None
    provenance: Provenance = MADE

    def observe(self, case: object) -> Observation | None:
        return self.said


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("tiny", tmp_path_factory.mktemp("pages")), "free", "tiny", 4)


def exchange(case: Case, actual: Answer | None = None) -> Exchange:
    return Exchange(case, actual or answer(observation()), observation(), 0.0, 0.0)


@pytest.mark.parametrize(
    ("comparisons", "passes", "verdict"),
    [
        ((FINE,), True, Verdict.MATCH),
        ((FINE, NONE, LEFT), True, Verdict.MATCH),
        ((FINE, replace(FINE, verdict=Verdict.DRIFT, error=1e-6)), True, Verdict.DRIFT),
        ((FINE, replace(FINE, verdict=Verdict.TIE_FLIP)), True, Verdict.TIE_FLIP),
        ((FINE, replace(FINE, verdict=Verdict.WRONG)), False, Verdict.WRONG),
        ((FINE, LACKING), False, Verdict.MATCH),
        ((NONE,), False, Verdict.NOT_COMPARED),
        ((LEFT,), False, Verdict.NOT_COMPARED),
        ((), False, Verdict.NOT_COMPARED),
    ],
)
def test_a_case_passes_where_all_that_is_offered_was_compared(
    comparisons: tuple[Comparison, ...], passes: bool, verdict: Verdict, case: Case
) -> None:
    report = CaseReport(exchange(case), comparisons, LIMITS)
    assert (report.passes, report.verdict) == (passes, verdict)
    assert sum(report.counts.values()) == len(comparisons)
    assert report.worst_error == max((one.error or 0.0 for one in comparisons), default=0.0)


@pytest.mark.parametrize("found", [FINE, replace(FINE, verdict=Verdict.WRONG)])
def test_what_an_error_cut_short_has_no_verdict_but_a_wrong_one(found: Comparison, case: Case) -> None:
    fault = SubjectFaultError("decode", "it raised")
    report = CaseReport(exchange(case, answer(observation(), fault=fault)), (found,), LIMITS)
    assert (report.fault, report.case) == (fault, case)
    assert report.verdict is (Verdict.WRONG if found.verdict is Verdict.WRONG else Verdict.NOT_COMPARED)
    assert not report.passes


def test_one_exchange_is_judged_as_often_as_limits_differ(case: Case) -> None:
    asked = exchange(case, answer(observation(), text="another"))
    strict, loose = judge(asked, LIMITS), judge(asked, LIMITS.but({"text": 9.0}))
    assert [report.passes for report in (strict, loose)] == [False, True]
    assert strict.exchange is loose.exchange is asked
    assert strict.divergence is not None
    assert (strict.divergence.first.what, loose.divergence) == ("text", None)


def test_both_sides_are_timed_apart_and_steps_are_reported(
    tiny: Engine[Any], case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference: Any = Reference(seen(tiny, case))
    reported: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("pytest_dsocr.cases.run.time", SimpleNamespace(perf_counter=iter((10.0, 11.0, 15.0)).__next__))
        found = ask(SessionSubject(tiny), reference, case, reported.append)
    assert (found.reference_s, found.subject_s) == (1.0, 4.0)
    assert reported == [0, 1, 2, 3]
    assert not found.answer.reread
    assert ask(SessionSubject(tiny), reference, case, always_read=True).answer.reread
    assert found.case is case
    assert found.findings == ()
