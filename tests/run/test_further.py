"""Causes besides the first one at L0: what a change of the whole text leaves is searched on its own."""

import html
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.describe.description import LEFT
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.question import Question
from pytest_dsocr.records.config import Level
from pytest_dsocr.report.case_result import FurtherResult, advice
from pytest_dsocr.run.further import UNDONE, further_causes
from tests.run.test_described import Port, _described, held
from tests.subjects.spoilt import only


def escaped(text: str) -> str:
    return html.escape(text, quote=False)


def spoilt(text: str) -> str:
    return text.replace("Figure", "Picture", 1)


def described(port: Port) -> CaseReport:
    report = held(port)
    return replace(report, exchange=replace(report.exchange, described={"text": _described(report)}))


def further(report: CaseReport, found: Explanation | None, asked: list[Question]) -> list[FurtherResult]:
    def answered(question: Question) -> Explanation | None:
        asked.append(question)
        return found

    explainer = SimpleNamespace(budget_s=1.0, answered=answered)
    resources: Any = SimpleNamespace(
        explainer=explainer, followed=set(), vocabulary=SimpleNamespace(tokenizer=resolve(MINI).tokenizer)
    )
    return [FurtherResult.of(one) for one in further_causes(report, only(Port(), Level.TEXT), resources)]


def test_a_text_that_is_changed_twice_is_searched_again_with_the_known_change_undone() -> None:
    both, asked = described(Port(lambda text: escaped(spoilt(text)))), list[Question]()
    assert both.described is not None
    assert LEFT in both.described.text
    assert advice(both).startswith("for what is left, every stage")
    right = both.exchange.expected.output.text
    named = Explanation("with x, the engine reproduces", "text", ("a.x",), ("x",), is_whole=True, is_proven=True)
    [cause] = further(both, named, asked)
    assert (cause.said, cause.proven) == (f"perhaps with x, the engine reproduces; {UNDONE}", False)
    for nothing in (Explanation("by none of 9", "text"), replace(named, text="by none of 9", words=())):
        [cause] = further(both, nothing, asked)
        assert cause.said == f"{UNDONE}, by none of 9"
    assert {one.page.text for one in asked} == {spoilt(right)}


def test_a_text_that_one_change_explains_is_not_searched_again() -> None:
    once, asked = described(Port(escaped)), list[Question]()
    assert not further(once, None, asked)
    assert not asked
    assert advice(once) == ""
