"""Client of the explaining process, which starts with the first question; each stage of a run is asked about once."""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.compare.readings import REPEATED, STATE
from pytest_dsocr.explain.deadline import longest
from pytest_dsocr.explain.hints import REFUTED
from pytest_dsocr.explain.mistake import ALL
from pytest_dsocr.explain.proof import MOST_ODDS, Evidence, odds_of_places, odds_of_tensor
from pytest_dsocr.explain.question import NOT, OF_TEXT, PageRead, Question, SearchResult, question_of
from pytest_dsocr.models import VISION
from pytest_dsocr.records.config import START_LIMIT_S, Setup
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.reference.client import Client
from pytest_dsocr.reference.protocol import ReferenceFaultError

RUNTIME = "pytest_dsocr.explain.explain:ExplainingRuntime"
FLAG = "--dsocr-explain"
PARTS = {
    ALL: "vision and the decoder",
    **dict.fromkeys(VISION, "vision"),
    **dict.fromkeys(("prefill", "steps"), "the decoder"),
    **{"pixels": "pixels", "prompt": "the prompt", "read": "the choice of tokens", "text": "what is made of tokens"},
}
"""Part of the model that a group of mistakes belongs to."""
MOST_PAGES = 8
"""Number of pages on which new mistakes are tried for texts; later pages only test the mistakes that are left."""
MOST_WORDS = 3
"""Largest number of equally good mistakes that are named."""


class Explainer:
    """Explains the first divergence of cases.

    Args:
        setup: the subject's; the engine has the same checkpoint, device, dtype and attention.
        budget_s: CPU seconds of a search; 0 turns it off.
        time_limit_s: seconds that the process may take besides the search.
        start_limit_s: seconds that it may take to start and load.
    """

    def __init__(
        self, setup: Setup, budget_s: float, time_limit_s: float = 600, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self.budget_s = budget_s
        self._asked = set[str]()
        """Stages that were asked about."""
        self._proven: dict[str, tuple[Explanation, str]] = {}
        """Proof and its case, by comparison."""
        self._pages = list[PageRead]()
        """Pages with a judged text."""
        self.left: tuple[str, ...] = ()
        """Ids of the mistakes that give the subject's text on every page so far."""
        self._done = dict[str, None]()
        """Ids of the mistakes that were tried on these pages."""
        self._untried = 0
        """Number of mistakes that were not."""
        of_setup = {name: getattr(setup, name) for name in ("checkpoint", "device", "dtype", "attention")}
        load = {"runtime": RUNTIME, "vendor": None, "command": "", **of_setup}
        self._client = Client(Path(sys.executable), load, time_limit_s + longest(budget_s), start_limit_s)

    def explain(self, report: CaseReport) -> Explanation | None:
        """Explain the first divergence of a case; None if its stage was asked about before and nothing was proven.

        A later case that breaks at the same comparison gets the proof of the first. If the whole page is wrong too, a
        proof for crops also holds for pages without crops. A text says little: each further page, right or wrong, tests
        the mistakes that are left, and continues a search that ran out of time.
        """
        question = question_of(report, self.budget_s) if self.budget_s else None
        if question is None or question.what in OF_TEXT:
            return self._of_text(question) if question else None
        page, stage = of_whole_page(question.what), ComparisonName.parse(question.what).stage
        assert report.divergence is not None
        places = dict.fromkeys((question.what, *[page] * report.divergence.scene.wrong(page)))
        known, case_id = next((self._proven[what] for what in places if what in self._proven), (None, ""))
        if known:
            return replace(known, text=f"{known.text}; as in {case_id}", what=question.what)
        if stage in self._asked:
            return None
        self._asked.add(stage)
        found = self.answered(question)
        if found and found.is_proven:
            self._proven |= dict.fromkeys(places, (found, report.case.id))
        return found

    def _of_text(self, question: Question) -> Explanation | None:
        """Explain the texts of all pages so far; a right page only tests the mistakes that are left."""
        others, self._pages = tuple(self._pages), [*self._pages, question.page]
        goes_on = not question.page.is_right and len(self._pages) <= MOST_PAGES
        if not self.left and not goes_on:
            return None
        known, done = self.left, tuple(self._done) if goes_on else None
        answer = self._answer(asked := replace(question, others=others[:MOST_PAGES], only=known, done=done))
        if isinstance(answer, Explanation):
            return answer
        missed = {*known} - {*answer.done}
        self._done = dict.fromkeys(one for one in (*self._done, *answer.done) if one not in missed)
        self._untried = (answer.untried if goes_on else self._untried) + len(missed)
        self.left = answer.found
        if known and not (self.left or missed):
            return Explanation(f"{REFUTED} what explains the pages before", question.what, pages=len(self._pages))
        explanation = in_words(replace(asked, done=tuple(self._done)), replace(answer, untried=self._untried))
        return explanation and replace(explanation, pages=explanation.pages and len(self._pages))

    def answered(self, question: Question) -> Explanation | None:
        """Answer a question without regard to earlier ones."""
        answer = self._answer(question)
        return answer if isinstance(answer, Explanation) else in_words(question, answer)

    def _answer(self, question: Question) -> SearchResult | Explanation:
        """Ask the process. If it fails, return an explanation with the reason."""
        try:
            return self._client.ask(
                question.what,
                "explain",
                {"question": question.pack()},
                lambda answer: msgspec.convert(answer, SearchResult),
            )
        except ReferenceFaultError as error:
            return Explanation(f"nothing was tried: {str(error).splitlines()[0]}")

    def close(self) -> None:
        """End the process if it was started."""
        self._client.close()


def explained_by_readings(report: CaseReport) -> Explanation | None:
    """Return the explanation of a case that breaks in its text because its readings differ; otherwise None."""
    divergence, why = report.divergence, report.readings.why if report.readings else ""
    if divergence is None or not why or divergence.first.what not in REPEATED:
        return None
    evidence = Evidence(0, 1, MOST_ODDS if why == STATE else 1.0)
    return Explanation(why, divergence.first.what, is_proven=evidence.is_proof)


def in_words(question: Question, answer: SearchResult) -> Explanation | None:
    """Return the explanation of a search's result; None if nothing was tried."""
    if not answer.tried and not answer.raised:
        return None
    what, is_text = question.what, question.what in OF_TEXT
    if not answer.found:
        tried = count(answer.tried, "known mistake")
        untried = _untried(question, answer)
        failed = () if question.others else answer.raised
        raised = f"; {len(failed)} could not be computed: {_named(failed, ', ')}" if failed else ""
        pages = len(question.others) + 1 if is_text and not untried else 0
        return Explanation(f"by none of {tried} tried at {what}{raised}{untried}", what, pages=pages)
    if is_text:
        return _of_texts(question, answer)
    words = _named(answer.words, ", or ")
    apart = "equal" if answer.error == 0 else f"{answer.error:.0e} apart"
    without = "" if answer.without in (1.0, math.inf) else f", {answer.without:.0e} without"
    if not answer.explained:
        nearer = f"the engine comes nearer to the subject's {what} ({apart}{without})"
        return Explanation(f"in part: with {words}, {nearer}", what, answer.found)
    reproduced = f"the engine reproduces the subject's {what} ({apart}{without})"
    text = f"with {words}, {reproduced}{_behind(answer)}{_untried(question, answer)}"
    return Explanation(text, what, answer.found, evidence_of(question, answer).is_proof)


def evidence_of(question: Question, answer: SearchResult) -> Evidence:
    """Return the evidence for the mistakes that give the subject's values.

    It is void if the next tensors contradict the mistake. A mistake that is known to coincide with another on some page
    is proven only if the other one was tried.
    """
    from pytest_dsocr.explain.catalogue import twins

    odds = odds_of_tensor(answer.error, question.ordinary)
    by_text = question.what in OF_TEXT
    tried = {*answer.done, *(question.done or () if by_text else ())}
    if answer.places is not None:
        odds = odds_of_places(answer.places, len({*(question.done or ()), *answer.done}))
    unseen = len({other for one in answer.found for other in twins(one, by_text=by_text)} - tried)
    return Evidence(answer.untried + unseen, len(answer.found), 1.0 if answer.beyond.startswith(NOT) else odds)


def _of_texts(question: Question, answer: SearchResult) -> Explanation:
    """Name the mistakes that give the texts of all pages so far; if there are many, name their part of the model."""
    pages, many = len(question.others) + 1, len(answer.found) > MOST_WORDS
    parts = Counter(PARTS[group] for group in answer.groups)
    of_parts = ", ".join(f"{n} of {part}" for part, n in parts.most_common())
    one_part = f"all of them of {of_parts.partition(' of ')[2]}" if len(parts) == 1 else of_parts
    words = _named(answer.words, ", or ")
    evidence = evidence_of(question, answer)
    text = f"by one of {len(answer.found)} mistakes, {one_part}: with {words}" if many else f"with {words}"
    if evidence.odds > MOST_ODDS:
        places = count(answer.places or 0, "place")
        text = f"perhaps by chance, as the texts differ from the right ones in {places} only: {text}"
    where = "the subject's text of every page so far" if question.others else "the subject's text"
    text += f", the engine reproduces {where} (equal){_untried(question, answer)}"
    return Explanation(text, question.what, answer.found, evidence.is_proof, pages)


def _behind(answer: SearchResult) -> str:
    if answer.beyond.startswith(NOT):
        return f", but not {answer.beyond.removeprefix(NOT)}"
    return f", and also {answer.beyond}" if answer.beyond else ""


def _named(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - MOST_WORDS} more"] if len(words) > MOST_WORDS else []
    return between.join([*words[:MOST_WORDS], *more])


def _untried(question: Question, answer: SearchResult) -> str:
    if not answer.untried:
        return ""
    left = count(answer.untried, "other")
    return f"; the {question.budget_s:g} s ended before {left}, {FLAG}=SECONDS allows more"
