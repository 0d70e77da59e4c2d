"""Client of the explaining process, which starts with the first question; each stage of a run is asked about once."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import NOT_MEASURED, Answer, note
from pytest_dsocr.explain import sentence
from pytest_dsocr.explain.computed import Seen
from pytest_dsocr.explain.deadline import longest
from pytest_dsocr.explain.question import BY_TEXT, PageRead, Question, Trail, question_of
from pytest_dsocr.explain.search import NOT, NextWrong, SearchResult
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import START_LIMIT_S, Level, Setup
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.reference.client import Client
from pytest_dsocr.reference.protocol import ReferenceFaultError, pack_case

LOG = logging.getLogger(__name__)
RUNTIME = "pytest_dsocr.explain.runtime:ExplainingRuntime"
TEXTS = "text"
"""Name of all that a text alone decides, which is one search."""
DESCRIBING = 0.5
"""Part of a search's CPU seconds after which describers that take long end."""
MOST_TOGETHER = 2
"""Number of earlier pages that must have been fed as a later one."""
MOST_PAGES = 8
"""Number of pages on which new mistakes are tried for texts; later pages only test the mistakes that are left."""


class Explainer:
    """Explains the first divergence of cases.

    Args:
        setup: the subject's; the engine has the same checkpoint, device, dtype and attention.
        budget_s: CPU seconds of a search; 0 turns it off.
        time_limit_s: seconds that the process may take besides the search.
        start_limit_s: seconds that it may take to start and load.
        out: folder of the run's result, for scripts that show a difference; None for none.
    """

    def __init__(
        self,
        setup: Setup,
        budget_s: float,
        time_limit_s: float = 600,
        start_limit_s: float = START_LIMIT_S,
        out: Path | None = None,
    ) -> None:
        self.budget_s, self._out = budget_s, out and str(out.absolute())
        self._asked: dict[str, tuple[Explanation | None, str]] = {}
        """Answer and its case, by the stage that was asked about."""
        self._proven: dict[str, tuple[Explanation, str]] = {}
        """Proof and its case, by comparison."""
        self._pages = list[PageRead]()
        """Pages with a judged text."""
        self.left: tuple[str, ...] = ()
        """Ids of the mistakes that give the subject's text on every page so far."""
        self._done = dict[str, None]()
        """Ids of the mistakes that were tried on these pages."""
        self._refuted = set[str]()
        """Ids of the mistakes that give another text on one of them."""
        self._untried = 0
        """Number of mistakes that were not."""
        self._places = 0
        """Number of places on these pages that only the mistakes left explain."""
        of_setup = {name: getattr(setup, name) for name in ("checkpoint", "device", "dtype", "attention")}
        load = {"runtime": RUNTIME, "vendor": None, "command": "", **of_setup}
        self._client = Client(Path(sys.executable), load, time_limit_s + longest(budget_s), start_limit_s)

    def explain(self, report: CaseReport) -> Explanation | None:
        """Explain the first divergence of a case; None if nothing can be tried.

        Each stage is searched once. A later case that breaks at the same comparison gets the proof of the first. If the
        whole page is wrong too, a proof for crops is tried on pages without crops, and the reverse.

        A text says little: each further page, right or wrong, tests the mistakes that are left, and continues a search
        that ran out of time.
        """
        question = question_of(report, self.budget_s) if self.budget_s else None
        if question is None or question.what in BY_TEXT:
            return self._of_text(question, report.case.id) if question else None
        page, stage = of_whole_page(question.what), ComparisonName.parse(question.what).stage
        assert report.divergence is not None
        places = dict.fromkeys((question.what, *[page] * report.divergence.scene.wrong(page)))
        known, case_id = next((self._proven[what] for what in places if what in self._proven), (None, ""))
        is_same = known is None or known.what == question.what or self._holds(known, question)
        if known and is_same:
            return replace(known, text=f"{known.text}; as in {case_id}", what=question.what)
        if stage in self._asked and is_same:
            if (found := self._continued(question, *self._asked[stage])) is None:
                return self._earlier(question)
        else:
            found = self.answered(question)
        self._asked[stage] = found, report.case.id
        if found and found.is_proven:
            self._proven |= dict.fromkeys(places, (found, report.case.id))
        return found

    def _continued(self, question: Question, earlier: Explanation | None, case_id: str) -> Explanation | None:
        """Try the mistakes that an earlier page had no time for; None unless its cause reproduces this page too.

        A mistake that gives other values than the subject's on either page is not the cause of both.
        """
        if earlier is None or not (earlier.is_whole and earlier.mistakes and earlier.untried):
            return None
        asked = replace(question, only=earlier.mistakes, done=tuple(earlier.refuted))
        answer = self._answer(asked)
        if isinstance(answer, Explanation) or not answer.explained or answer.beyond.startswith(NOT):
            return None
        if not {*answer.found} <= {*earlier.mistakes} or (found := sentence.of_search(asked, answer)) is None:
            return None
        text = f"{found.text}; {case_id} refutes the others" if found.is_proven else found.text
        return replace(found, text=text, refuted=found.refuted | (earlier.refuted - {*found.mistakes}))

    def _holds(self, known: Explanation, question: Question) -> bool:
        """Return whether the proof for another view holds for this one."""
        answer = self._answer(replace(question, only=known.mistakes, done=None))
        return isinstance(answer, SearchResult) and answer.explained and not answer.beyond.startswith(NOT)

    def _of_text(self, question: Question, case_id: str) -> Explanation | None:
        """Explain the texts of all pages so far; a right page only tests the mistakes that are left."""
        others, self._pages = tuple(self._pages), [*self._pages, question.page]
        goes_on = not question.page.is_right and len(self._pages) <= MOST_PAGES
        if not self.left and not goes_on:
            return None if question.page.is_right else self._earlier(question)
        known, done = self.left, tuple(self._done) if goes_on else None
        asked = replace(question, others=others[:MOST_PAGES], only=known, places=self._places, done=done)
        answer = self._answer(asked)
        if isinstance(answer, Explanation):
            return answer
        missed = {*known} - {*answer.done}
        self._done = dict.fromkeys(one for one in (*self._done, *answer.done) if one not in missed)
        self._untried = (answer.untried if goes_on else self._untried) + len(missed)
        self.left, self._places = answer.found, answer.places or 0
        self._refuted = (self._refuted | {*answer.refuted}) - {*self.left}
        if known and not (self.left or missed):
            explanation: Explanation | None = sentence.of_refuted(question.what, len(self._pages))
        else:
            whole = replace(answer, untried=self._untried)
            explanation = sentence.of_search(replace(asked, done=tuple(self._done)), whole)
        if explanation is None:
            return None
        pages = explanation.pages and len(self._pages)
        own = replace(explanation, pages=pages, refuted=frozenset(self._refuted), untried=self._untried)
        self._asked[TEXTS] = own, case_id
        return own

    def _earlier(self, question: Question) -> Explanation | None:
        """Return the explanation of a case that is not searched again; None if nothing was tried before."""
        stage = TEXTS if question.what in BY_TEXT else ComparisonName.parse(question.what).stage
        found, case_id = self._asked.get(stage, (None, ""))
        return sentence.of_earlier(found, case_id, question.what) if found and found.what else None

    def answered(self, question: Question) -> Explanation | None:
        """Answer a question without regard to earlier ones."""
        answer = self._answer(question)
        return answer if isinstance(answer, Explanation) else sentence.of_search(question, answer)

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

    def describe(self, report: CaseReport, seen: Seen, earlier: Sequence[Case] = ()) -> tuple[Description, ...]:
        """Describe the subject's tensor of a case; nothing if the process fails, or has no expected tensor.

        ``earlier`` are pages that were read before.
        """
        expected = report.exchange.expected
        summary = getattr(expected.inputs, seen.what) if seen.what in PIXELS else expected.seams[seen.what]
        if isinstance(summary, Seam):
            summary = vars(replace(summary, values=None, not_finite=None))
        params = {"case": pack_case(report.case), "seen": seen._asdict(), "expected": summary, "out": self._out}
        params["earlier"] = [pack_case(one) for one in earlier]
        return self._described(report, seen.what, "describe", params)

    def describe_choices(self, report: CaseReport, what: str) -> tuple[Description, ...]:
        """Describe the rule by which the tokens of a case's text were chosen; nothing if none is known."""
        is_sure = report.exchange.answer.level >= Level.STAGES
        page = PageRead.of(report)
        others = [one for one in self._pages if one.case != page.case][-MOST_TOGETHER:]
        params = {"page": msgspec.to_builtins(page), "others": msgspec.to_builtins(others), "is_sure": is_sure}
        return self._described(report, what, "describe_choices", params)

    def describe_cache(
        self,
        report: CaseReport,
        tokens: Sequence[int],
        given: Mapping[str, Tensor],
        kept: Sequence[tuple[Tensor, Tensor]],
        attended: Mapping[int, Tensor],
        gave: Mapping[int, Tensor],
        earlier: Sequence[Case] = (),
    ) -> Description | None:
        """Describe the subject's cache after a prompt and these tokens; None if that is not possible.

        ``given`` are the subject's own inputs of the prefill. ``attended`` and ``gave`` are, by layer, its results of
        attention and its outputs in the last steps. ``earlier`` are pages read before.
        """
        params: dict[str, Any] = {"case": pack_case(report.case), "tokens": [*tokens], "kept": [*kept]}
        params |= {"given": {**given}, "attended": {**attended}, "gave": {**gave}}
        params |= {"earlier": [pack_case(one) for one in earlier]}
        return next(iter(self._described(report, "logits", "describe_cache", params)), None)

    def _described(
        self, report: CaseReport, what: str, request: str, params: Mapping[str, Any]
    ) -> tuple[Description, ...]:
        whole = {**params, "budget_s": DESCRIBING * self.budget_s}
        try:
            answer = self._client.ask(what, request, whole, lambda answer: msgspec.convert(answer, Answer))
        except ReferenceFaultError as error:
            answer = Answer((), (f"{NOT_MEASURED} {what} of {report.case.id}: {str(error).splitlines()[0]}",))
        for line in answer.lines:
            note(line)
        return answer.found

    def further(self, report: CaseReport, outputs: Sequence[str]) -> tuple[Explanation, ...]:
        """Explain what else is wrong on its own, besides the first divergence and what follows from it.

        Args:
            report: the judged case, with the explanation of its first divergence.
            outputs: wrong outputs to look at besides the tensors.
        """
        if (question := question_of(report, self.budget_s)) is None:
            return ()
        params = {"case": pack_case(report.case), "trail": Trail.of(report, question, outputs).pack()}
        try:
            found = self._client.ask(
                question.what, "further", params, lambda answer: msgspec.convert(answer, list[NextWrong])
            )
        except ReferenceFaultError as error:
            LOG.warning("further causes of %s are not known: %s", report.case.id, str(error).splitlines()[0])
            return ()
        return (*sentence.of_further(question, found, report.explanation),)

    def close(self) -> None:
        """End the process if it was started."""
        self._client.close()
