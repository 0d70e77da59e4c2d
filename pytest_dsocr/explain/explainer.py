"""Who asks the explaining process: once for each stage of a run, and with the first question it is started."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.explain.question import Question, SearchResult, question_of
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
        self._asked: set[str] = set()
        self._proven: dict[str, Explanation] = {}
        load = {
            "runtime": RUNTIME,
            "vendor": None,
            "checkpoint": setup.checkpoint,
            "device": setup.device,
            "dtype": setup.dtype,
            "attention": setup.attention,
            "command": "",
        }
        self._client = Client(Path(sys.executable), load, time_limit_s + budget_s, None)

    def explain(self, report: CaseReport) -> Explanation | None:
        """Explain the first divergence of a case, of the first case whose stage breaks.

        For another case that breaks at the same comparison the first proof is repeated; None for any other. Where crops
        and the whole page are wrong, it is that of a page that is not cut as well.
        """
        question = question_of(report, self.budget_s) if self.budget_s else None
        if question is None or report.divergence is None:
            return None
        page = of_whole_page(question.what)
        places = dict.fromkeys((question.what, *[page] * report.divergence.scene.wrong(page)))
        if known := next((self._proven[what] for what in places if what in self._proven), None):
            return replace(known, what=question.what)
        if (stage := question.what.partition("/")[0].partition(".")[0]) in self._asked:
            return None
        self._asked.add(stage)
        found = self.answered(question)
        if found and found.is_proven:
            self._proven |= dict.fromkeys(places, replace(found, text=f"{found.text}; as in {report.case.id}"))
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
        return in_words(question, answer)

    def close(self) -> None:
        """End the process, where one was started."""
        self._client.close()


def in_words(question: Question, answer: SearchResult) -> Explanation | None:
    """Put an answer in words; None where nothing was tried."""
    if not answer.tried:
        return None
    if not answer.found:
        tried = count(answer.tried, "known mistake")
        return Explanation(f"by none of {tried} tried at {question.what}{_untried(question, answer)}", question.what)
    words = ", or ".join(answer.words[:MOST_WORDS])
    if len(answer.words) > MOST_WORDS:
        words += f", or {len(answer.words) - MOST_WORDS} more"
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


def _untried(question: Question, answer: SearchResult) -> str:
    if answer.tried == answer.of:
        return ""
    left = count(answer.of - answer.tried, "other")
    return f"; its {question.budget_s:g} s ended in front of {left}, {FLAG}=SECONDS allows more"
