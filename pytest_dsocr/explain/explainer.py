"""Who asks the explaining process: once for each stage of a run, and with the first question it is started."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.explain.hints import REFUTED
from pytest_dsocr.explain.question import OF_TEXT, Question, SearchResult, question_of
from pytest_dsocr.foundation.words import count
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.reference.live import Client
from pytest_dsocr.reference.protocol import ReferenceFaultError

RUNTIME = "pytest_dsocr.explain.runtime:ExplainingRuntime"
FLAG = "--dsocr-explain"
MOST_WORDS = 3
"""The most mistakes that are named which explain a divergence equally well."""


class Explainer:
    """Says what would explain a case's first divergence.

    Args:
        setup: the subject's; the session computes with the same checkpoint, device, dtype and attention.
        budget_s: how long a search may take; with 0 nothing is asked.
        time_limit_s: how long the process may take to load and to answer beside that.
    """

    def __init__(self, setup: Setup, budget_s: float, time_limit_s: float = 600) -> None:
        self.budget_s = budget_s
        self._asked: dict[str, tuple[int, float]] = {}
        """By stage how many mistakes were computed where time ended that search, else 0, and the page's tokens."""
        self._ended = 0
        self._proven: dict[str, tuple[Explanation, str]] = {}
        """By comparison what explains it, with the case; of a text also where more mistakes do than can be named."""
        of_setup = {name: getattr(setup, name) for name in ("checkpoint", "device", "dtype", "attention")}
        load = {"runtime": RUNTIME, "vendor": None, "command": "", **of_setup}
        self._client = Client(Path(sys.executable), load, time_limit_s + budget_s, None)

    def explain(self, report: CaseReport) -> Explanation | None:
        """Explain the first divergence of a case, of the first case whose stage breaks.

        For another case that breaks at the same comparison the first proof is repeated; None for any other. Where crops
        and the whole page are wrong, it is that of a page that is not cut as well. Of texts, which say little, or where
        several mistakes give the same, those found are tried again on the next case, and kept if they explain it as
        well. A search among texts that its time ended goes on at a page that is read quicker.
        """
        question = question_of(report, self.budget_s) if self.budget_s else None
        if question is None or report.divergence is None:
            return None
        page = of_whole_page(question.what)
        places = dict.fromkeys((question.what, *[page] * report.divergence.scene.wrong(page)))
        known, case_id = next((self._proven[what] for what in places if what in self._proven), (None, ""))
        stage, is_text = question.what.partition("/")[0].partition(".")[0], question.what in OF_TEXT
        skip, least = self._asked.get(stage, (0, math.inf))
        tokens = sum(count for _, count in report.exchange.expected.inputs.input_ids) + len(question.reference_tokens)
        if known and len(known.mistakes) == 1 and not is_text:
            return replace(known, text=f"{known.text}; as in {case_id}", what=question.what)
        if not known and stage in self._asked and not (is_text and skip and tokens < least):
            return None
        found = self.answered(replace(question, only=known.mistakes if known else (), skip=0 if known else skip))
        if found and (found.is_proven or (is_text and found.mistakes)):
            self._proven |= dict.fromkeys(places, (found, report.case.id))
        elif known and found and found.what and not self._ended:
            return Explanation(f"{REFUTED} what explains {case_id}", question.what)
        self._asked[stage] = self._ended, tokens
        return found

    def answered(self, question: Question) -> Explanation | None:
        """Answer a question, whatever was asked before."""
        try:
            answer = self._client.ask(
                question.what,
                "explain",
                {"question": msgspec.to_builtins(question, str_keys=True)},
                lambda response: msgspec.convert(response.result, SearchResult),
            )
        except ReferenceFaultError as error:
            return Explanation(f"nothing was tried: {str(error).splitlines()[0]}")
        computed = answer.tried + len(answer.raised)
        self._ended = question.skip + computed if computed < answer.of else 0
        return in_words(question, answer)

    def close(self) -> None:
        """End the process, where one was started."""
        self._client.close()


def in_words(question: Question, answer: SearchResult) -> Explanation | None:
    """Put an answer in words; None where nothing was tried."""
    if not answer.tried and not answer.raised:
        return None
    if not answer.found:
        tried = count(answer.tried, "known mistake")
        left = f"{_raised(answer)}{_untried(question, answer)}"
        return Explanation(f"by none of {tried} tried at {question.what}{left}", question.what)
    words = _named(answer.words, ", or ")
    if question.what in OF_TEXT and len(answer.found) > MOST_WORDS:
        return Explanation(f"by too many mistakes to tell: with {words} it is the same", question.what, answer.found)
    apart = "equal" if answer.error == 0 else f"{answer.error:.0e} apart"
    without = "" if answer.without in (1.0, math.inf) else f", {answer.without:.0e} without"
    if not answer.explained:
        nearer = f"the session comes nearer to the subject's {question.what} ({apart}{without})"
        return Explanation(f"in part: with {words}, {nearer}", question.what, answer.found)
    reproduced = f"the session reproduces the subject's {question.what} ({apart}{without})"
    return Explanation(f"with {words}, {reproduced}{_behind(answer)}", question.what, answer.found, is_proven=True)


def _behind(answer: SearchResult) -> str:
    if answer.beyond.startswith("not "):
        return f", but not in {answer.beyond.removeprefix('not ')}"
    return f", and so it does in {answer.beyond}" if answer.beyond else ""


def _named(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - MOST_WORDS} more"] if len(words) > MOST_WORDS else []
    return between.join([*words[:MOST_WORDS], *more])


def _raised(answer: SearchResult) -> str:
    return f"; {len(answer.raised)} could not be computed: {_named(answer.raised, ', ')}" if answer.raised else ""


def _untried(question: Question, answer: SearchResult) -> str:
    untried = answer.of - answer.tried - len(answer.raised)
    if not untried:
        return ""
    left = count(untried, "other")
    return f"; its {question.budget_s:g} s ended in front of {left}, {FLAG}=SECONDS allows more"
