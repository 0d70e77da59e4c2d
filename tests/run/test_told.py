"""A wrong ``text_of`` is described by what it makes of other tokens, and no mistake is named that these refute."""

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.records.config import Level
from pytest_dsocr.run.described_tensors import descriptions
from pytest_dsocr.run.further import further_causes
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.sides import ask
from pytest_dsocr.run.told import told_beside, with_told
from pytest_dsocr.subjects.engine import EngineSubject
from tests.faults.trial import SETUP, cases, loaded, reference
from tests.subjects.spoilt import only

Tell = Callable[[EngineSubject, Sequence[int]], str]


class Port(EngineSubject):
    """An engine with another ``text_of``."""

    tell: Tell

    def text_of(self, token_ids: Sequence[int]) -> str:
        return self.tell(loaded(), token_ids)


@pytest.fixture(scope="module")
def right() -> CaseReport:
    """Return the report of the quickest page, read without a mistake."""
    subject: Any = only(Port(loaded().engine), Level.STAGES, "text_of")
    subject.text_of = loaded().text_of
    report = judge(ask(subject, reference(), cases()[0], tokenizer=resolve(MINI).tokenizer), tolerances("float32"))
    assert report.divergence is None
    return report


@pytest.fixture(scope="module")
def resources() -> Iterator[RunResources]:
    made = RunResources(SETUP, Explainer(SETUP, 20.0))
    yield made
    made.close()


def _held_back(subject: EngineSubject, ids: Sequence[int]) -> str:
    return subject.text_of(ids).removesuffix(EOS)[:-2]


def _without_last(subject: EngineSubject, ids: Sequence[int]) -> str:
    return subject.text_of(ids[:-2])


def _line_ends_cut(subject: EngineSubject, ids: Sequence[int]) -> str:
    return "\n".join(line[:-1] for line in subject.text_of(ids).removesuffix(EOS).split("\n"))


TELLS: dict[str, tuple[Tell, str, tuple[str, ...]]] = {
    "held back": (_held_back, "the last 2 characters are missing", ()),
    "last token": (_without_last, "the last token is missing", ("text.last-dropped",)),
    "each line": (_line_ends_cut, "the last character of each line is missing", ()),
    "whole": (lambda subject, ids: subject.text_of(ids)[:100], "all after the first 100 characters are missing", ()),
}


@pytest.mark.parametrize(("tell", "words", "mistakes"), TELLS.values(), ids=TELLS)
def test_a_wrong_text_of_is_described_by_other_tokens(
    tell: Tell, words: str, mistakes: tuple[str, ...], right: CaseReport, resources: RunResources
) -> None:
    port = Port(loaded().engine)
    port.tell = tell
    text = tell(loaded(), right.exchange.expected.token_ids).removesuffix(EOS).strip()
    answer = replace(right.exchange.answer, text=text)
    wrong = judge(replace(right.exchange, answer=answer), tolerances("float32"))
    report = with_told(wrong, only(port, Level.STAGES, "text_of"), resources.vocabulary.tokenizer)
    assert len(report.exchange.told) >= 6
    [found] = descriptions(report, port, resources).values()
    assert found.text.startswith(f"in what `text_of` returns, {words}, for each of ")
    explanation = resources.explainer.answered(_question(report))
    assert explanation is not None
    assert explanation.mistakes == mistakes


def _wrong_before(right: CaseReport) -> CaseReport:
    """Return the report of a page whose first wrong values are those of vision, and whose text is wrong as well."""
    answer = right.exchange.answer
    what = next(name for name in answer.seams if name.startswith("sam"))
    seam = replace(answer.seams[what], sha256="", sketch=2 * answer.seams[what].sketch)
    wrong = replace(answer, seams={**answer.seams, what: seam}, text="another text", input_tensors=None)
    report = judge(replace(right.exchange, answer=wrong), tolerances("float32"))
    assert report.divergence is not None
    assert report.divergence.first.what == what
    return report


def _question(report: CaseReport) -> Any:
    from pytest_dsocr.explain.question import question_of

    return question_of(report, 20.0)


def test_a_text_of_that_is_not_the_cause_is_not_asked(right: CaseReport, resources: RunResources) -> None:
    answer = replace(right.exchange.answer, text="another text")
    wrong = judge(replace(right.exchange, answer=answer), tolerances("float32"))
    subject: Any = only(loaded(), Level.STAGES, "text_of")
    assert with_told(wrong, subject, resources.vocabulary.tokenizer).exchange.told == ()


def _escaped(subject: EngineSubject, ids: Sequence[int]) -> str:
    return html.escape(subject.text_of(ids).removesuffix(EOS), quote=False)


BESIDE: dict[str, tuple[Tell, str, str]] = {
    "escaped": (_escaped, "every &, < and > is escaped as in HTML", "text.escaped"),
    "held back": (_held_back, "the last 2 characters are missing", ""),
}


@pytest.mark.parametrize(("tell", "words", "mistake"), BESIDE.values(), ids=BESIDE)
def test_a_wrong_text_of_is_a_cause_besides_a_wrong_stage(
    tell: Tell, words: str, mistake: str, right: CaseReport, resources: RunResources
) -> None:
    """The port's own tokens are wrong as well, so only the reference's show it."""
    port = Port(loaded().engine)
    port.tell = tell
    resources.followed.clear()
    [found] = further_causes(_wrong_before(right), only(port, Level.STAGES, "text_of"), resources)
    assert (found.what, *found.explanation.mistakes) == ("text", *filter(None, [mistake]))
    assert found.description is not None
    assert found.description.text.startswith(f"in what `text_of` returns, {words}, for each of ")


def test_a_wrong_text_of_is_a_cause_besides_a_read_that_does_not_use_it(
    right: CaseReport, resources: RunResources
) -> None:
    port = Port(loaded().engine)
    port.tell = _escaped
    wrong = judge(
        replace(right.exchange, answer=replace(right.exchange.answer, text="another text", input_tensors=None)),
        tolerances("float32"),
    )
    resources.followed.clear()
    subject = only(port, Level.STAGES, "text_of")
    report = with_told(wrong, subject, resources.vocabulary.tokenizer)
    [found] = further_causes(report, subject, resources)
    assert (found.what, *found.explanation.mistakes) == ("text", "text.escaped")


def test_a_right_text_of_is_no_further_cause(right: CaseReport, resources: RunResources) -> None:
    subject: Any = only(loaded(), Level.STAGES, "text_of")
    assert told_beside(_wrong_before(right), subject, resources.vocabulary.tokenizer) == ()
