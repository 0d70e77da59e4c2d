"""Mistake after mistake planted in one loaded session, and held against the recordings of the quick pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from pytest_dsocr.cases.limits import limits_between
from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.faults.outcome import Fault, Outcome, outcome_of
from tests.faults.suites import ask_suites, failure
from tests.recordings import FOLDER, find_recording

QUICKEST = ("figures_201", "invoice_016")
Upto = Literal["inputs", "prefill", "read"]
READ_TOKENS = 200
"""A subject in a loop is not read to the end: the longest of these pages has 180."""
BUDGET_S = 120
"""Of an explanation: longer than a run's own, as several are tried at a time."""
FIRST_ASKED: Mapping[str, Upto] = {"tokenizer": "inputs", "decode": "read", "postprocess": "read", "read": "read"}
"""How far a subject is asked at first about a mistake of a stage; where it is right so far, to the end, but for one of
inputs: where these are the recorded ones to the bit, so is what comes of them."""


class Brief(SessionSubject):
    """A session that does not read for ever, and is asked no further than is needed."""

    upto: Upto = "read"

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.upto == "inputs":
            raise DsocrError("no vision is asked for")
        return super().vision(inputs)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return super().read(page, prompt=prompt, preset=preset, max_new_tokens=min(max_new_tokens, READ_TOKENS))

    def step(self, state: Any, token: int) -> Tensor:
        if self.upto == "prefill":
            raise DsocrError("no step is asked for")
        return super().step(state, token)


@cache
def loaded() -> Brief:
    """Return the one session of this process."""
    return Brief(session_subject(Setup()).session)


@cache
def reference() -> RecordedReference:
    """Return the recordings of the embedded checkpoint."""
    return RecordedReference(find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()))


@cache
def cases() -> tuple[Case, ...]:
    """Return the pages of a default run: in front the quickest without crops, and with some."""
    pages = {page.stem: page for page in shipped("dev-3")}
    return tuple(make_case(pages[name], "markdown", "gundam") for name in dict.fromkeys((*QUICKEST, *pages)))


@contextmanager
def planted(fault: Fault) -> Iterator[Brief]:
    """Yield the loaded session with a mistake in it, which is taken out again."""
    reference()  # found before: it is chosen by how Pillow resizes, which a mistake may change
    with fault.put(loaded()):
        yield loaded()


def hold(subject: Brief, case: Case, upto: Upto, *, always_read: bool = False) -> CaseReport:
    """Hold the subject against the recording of a page, up to its inputs, to prefill or to the end."""
    subject.upto = upto
    try:
        exchange = ask(subject, reference(), case, always_read=always_read, tokenizer=resolve(MINI).tokenizer)
    finally:
        subject.upto = "read"
    return judge(exchange, limits_between(subject, reference(), Setup()))


def try_fault(fault: Fault, explainer: Explainer, *, suites: bool) -> Outcome | None:
    """Plant a mistake; say how the first page or suite of a default run shows it, and None where none does."""
    if suites and "::" in fault.shows and (found := failure(fault, [fault.shows])):
        return found
    upto: Upto = "read" if fault.unseen else FIRST_ASKED.get(fault.stage, "prefill")
    with planted(fault) as subject:  # for all pages, as a mistake may keep something of one for the next
        for case in cases():
            shown = _held(subject, case, upto)
            if shown and (found := outcome_of(fault, case.page.stem, shown)):
                break
        else:
            shown = found = None
    if found is None or shown is None:
        return ask_suites(fault) if suites and not fault.unseen else None
    return _explained(fault, shown, found, explainer)


def _explained(fault: Fault, report: CaseReport, found: Outcome, explainer: Explainer) -> Outcome:
    question = question_of(report, BUDGET_S)
    answer = explainer.answered(question) if question else None
    if answer is None:
        return found
    named = fault.mistake.removeprefix("steps.") in {one.removeprefix("steps.") for one in answer.mistakes}
    return replace(found, explained=answer.text, proven=answer.is_proven, named=answer.is_proven and named)


def _held(subject: Brief, case: Case, upto: Upto) -> CaseReport | None:
    """Hold a page as far as is needed to see what is wrong; None where its inputs are right and no more was asked."""
    first = case == cases()[0]
    report = hold(subject, case, upto, always_read=first)
    if report.divergence is not None or upto == "read":
        return report
    if upto == "prefill":
        return hold(subject, case, "read", always_read=first)
    return None if report.fault is not None and report.fault.stage == "vision" else report
