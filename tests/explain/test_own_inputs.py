"""Texts with wrong inputs: the report says what else is wrong, unless the inputs explain the text."""

from dataclasses import replace

import pytest

from pytest_dsocr.compare.case import CaseRun, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.further import next_wrong
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.own_inputs import LEFT
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.explain.question import PageRead, Question, Trail, question_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import NextWrong, SearchResult
from pytest_dsocr.explain.sentence import of_further
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from tests.faults.proofs import every_id
from tests.faults.trial import cases, loaded
from tests.subjects.seen import seen
from tests.subjects.spoilt import only

TWO_BOS, NEWLINES = "prompt.two-bos", "vision_fusion.newlines-in-front"


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case(cases()[0].page, "markdown", "tiny", 24, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def expected(case: Case) -> ReferenceResult:
    return seen(loaded().engine, case, keep_values=True)


def test_of_mistakes_that_are_too_many_to_name_one_none_is_named() -> None:
    question = Question(PageRead({}, "", ()), "input_ids", int(Level.INPUTS), budget_s=60.0, near=1e-4)
    ids = tuple(f"prefill.{k}" for k in range(6))
    result = SearchResult(133, 9, 1.0, ids, ids, ("prefill",) * 6, 0.0, explained=True, done=ids, places=1)
    [found] = of_further(question, [NextWrong("text", result, left=LEFT)], None)
    assert (found.mistakes, found.is_proven) == ((), False)
    assert found.text.startswith(f"{LEFT}; {UNTOLD}")


@pytest.mark.parametrize(
    ("names", "tried", "is_left", "found"),
    [
        ((TWO_BOS,), (NEWLINES,), False, ()),
        ((TWO_BOS, NEWLINES), (NEWLINES,), True, (NEWLINES,)),
        ((TWO_BOS, NEWLINES), (), True, ()),
    ],
    ids=["inputs alone", "both named", "the second is unknown"],
)
def test_what_is_left_of_a_text_after_its_wrong_inputs_is_said(
    case: Case,
    expected: ReferenceResult,
    names: tuple[str, ...],
    tried: tuple[str, ...],
    is_left: bool,
    found: tuple[str, ...],
) -> None:
    engine, known = loaded().engine, mistakes(DEEPSEEK_OCR)
    with Changes() as changes:
        for name in names:
            plant(known[name], engine, changes)
        answer = run_teacher_forced(only(EngineSubject(engine), Level.INPUTS), case, expected, always_read=True)
    report = judge(CaseRun(case, answer, expected, 0.0, 0.0), tolerances("float32"))
    question = question_of(report, 60.0)
    assert question is not None
    question = replace(question, only=tried, done=None if tried else tuple(every_id()))
    right = Clean(engine, engine.prepare(case.page, prompt=case.prompt, preset=case.preset))
    every = [*of_further(question, next_wrong(right, case, Trail.of(report, question, ("text",))), None)]
    of_text = [one for one in every if one.what == "text"]
    assert len(of_text) == is_left
    assert [one.mistakes for one in of_text] == [found] * is_left
    assert all(one.text.count(LEFT) == 1 and not one.is_proven for one in of_text)
