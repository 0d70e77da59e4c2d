"""Who asks the explaining process: once for each stage of a run, and with the first question it is started."""

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
from pytest_dsocr.reference.live import Client
from pytest_dsocr.reference.protocol import ReferenceFaultError

RUNTIME = "pytest_dsocr.explain.explain:ExplainingRuntime"
FLAG = "--dsocr-explain"
PARTS = {
    ALL: "vision and the decoder",
    **dict.fromkeys(VISION, "vision"),
    **dict.fromkeys(("prefill", "steps"), "the decoder"),
    **{"pixels": "pixels", "prompt": "the prompt", "read": "the choice of tokens", "text": "what is made of tokens"},
}
"""The parts of the model that groups of mistakes are of."""
MOST_PAGES = 8
"""A search among texts goes on at no more pages; on those behind them only what is left is tried."""
MOST_WORDS = 3
"""The most mistakes that are named which explain a divergence equally well."""


class Explainer:
    """Says what would explain a case's first divergence.

    Args:
        setup: the subject's; the engine computes with the same checkpoint, device, dtype and attention.
        budget_s: the CPU seconds of a search; with 0 nothing is asked.
        time_limit_s: seconds that the process may take to answer besides that.
        start_limit_s: seconds that it may take to start and load.
    """

    def __init__(
        self, setup: Setup, budget_s: float, time_limit_s: float = 600, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self.budget_s = budget_s
        self._asked = set[str]()
        """The stages that were asked about."""
        self._proven: dict[str, tuple[Explanation, str]] = {}
        """By comparison what explains it, with the case."""
        self._pages = list[PageRead]()
        """Those whose text was judged."""
        self.left: tuple[str, ...] = ()
        """The ids of the mistakes that give the subject's text on each of them."""
        self._done = dict[str, None]()
        """Those that were tried on them."""
        self._untried = 0
        """How many were not."""
        of_setup = {name: getattr(setup, name) for name in ("checkpoint", "device", "dtype", "attention")}
        load = {"runtime": RUNTIME, "vendor": None, "command": "", **of_setup}
        self._client = Client(Path(sys.executable), load, time_limit_s + longest(budget_s), start_limit_s)

    def explain(self, report: CaseReport) -> Explanation | None:
        """Explain the first divergence of a case, of the first case whose stage breaks.

        For another case that breaks at the same comparison the first proof is repeated; None for any other. Where crops
        and the whole page are wrong, it is that of a page that is not cut as well. Of texts, which say little, what is
        left is tried on each further page, right or wrong, and the search goes on where its time ended it.
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
        """Explain the texts of all pages so far; of a page that is right, only by what explains those before."""
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
        """Answer a question, whatever was asked before."""
        answer = self._answer(question)
        return answer if isinstance(answer, Explanation) else in_words(question, answer)

    def _answer(self, question: Question) -> SearchResult | Explanation:
        """Ask the process; an explanation says why it did not answer."""
        try:
            return self._client.ask(
                question.what,
                "explain",
                {"question": msgspec.to_builtins(question, str_keys=True)},
                lambda response: msgspec.convert(response.result, SearchResult),
            )
        except ReferenceFaultError as error:
            return Explanation(f"nothing was tried: {str(error).splitlines()[0]}")

    def close(self) -> None:
        """End the process, where one was started."""
        self._client.close()


def explained_by_readings(report: CaseReport) -> Explanation | None:
    """Return what explains a case whose readings are not alike, where it breaks at what they read; else None."""
    divergence, why = report.divergence, report.readings.why if report.readings else ""
    if divergence is None or not why or divergence.first.what not in REPEATED:
        return None
    evidence = Evidence(0, 1, MOST_ODDS if why == STATE else 1.0)
    return Explanation(why, divergence.first.what, is_proven=evidence.is_proof)


def in_words(question: Question, answer: SearchResult) -> Explanation | None:
    """Put an answer in words; None where nothing was tried."""
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
    """Return what is known of the mistakes that give the subject's values.

    One that gives the tensor that breaks, and not what follows of it, is contradicted. One that is known to coincide
    with another mistake on some page is no proof unless the other was tried as well.
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
    """Say which mistakes give the texts of all pages so far, and of many, which part of the model they are of."""
    pages, many = len(question.others) + 1, len(answer.found) > MOST_WORDS
    parts = Counter(PARTS[name.partition(".")[0]] for name in answer.found)
    of_parts = ", ".join(f"{n} of {part}" for part, n in parts.most_common())
    one_part = f"all of them of {of_parts.partition(' of ')[2]}" if len(parts) == 1 else of_parts
    words = _named(answer.words, ", or ")
    evidence = evidence_of(question, answer)
    text = f"by one of {len(answer.found)} mistakes, {one_part}: with {words}" if many else f"with {words}"
    if evidence.odds > MOST_ODDS:
        text = f"perhaps by chance, as the texts leave the right ones in {count(answer.places or 0, 'place')}: {text}"
    where = "the subject's text of every page so far" if question.others else "the subject's text"
    text += f", the engine reproduces {where} (equal){_untried(question, answer)}"
    return Explanation(text, question.what, answer.found, evidence.is_proof, pages)


def _behind(answer: SearchResult) -> str:
    if answer.beyond.startswith(NOT):
        return f", but not in {answer.beyond.removeprefix(NOT)}"
    return f", and so it does in {answer.beyond}" if answer.beyond else ""


def _named(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - MOST_WORDS} more"] if len(words) > MOST_WORDS else []
    return between.join([*words[:MOST_WORDS], *more])


def _untried(question: Question, answer: SearchResult) -> str:
    if not answer.untried:
        return ""
    left = count(answer.untried, "other")
    return f"; its {question.budget_s:g} s ended in front of {left}, {FLAG}=SECONDS allows more"
