"""Mistake after mistake planted in one loaded session, and held against the recordings of the quick pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from torch import Tensor

from pytest_dsocr.cases.limits import limits_between
from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.checkout import CHECKOUT
from tests.faults.all import PLANTED
from tests.faults.asked_suites import ask_suites, failure
from tests.faults.outcome import Outcome, outcome_of
from tests.faults.registry import Fault
from tests.recordings import FOLDER, find_recording

PAGES, QUICKEST = "dev-3", ("figures_201", "invoice_016")
Upto = Literal["inputs", "prefill", "read"]
READ_TOKENS = 200
"""A subject in a loop is not read to the end: the longest of these pages has 180."""


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
    """Give the one session of this process."""
    return Brief(session_subject(Setup()).session)


@cache
def _reference() -> RecordedReference:
    return RecordedReference(find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()))


@cache
def cases(named: str = PAGES) -> tuple[Case, ...]:
    """Give the pages of a default run, or of another list: in front the quickest without crops, and with some."""
    pages = {page.stem: page for page in shipped(named)}
    order = [*(name for name in QUICKEST if name in pages), *(name for name in pages if name not in QUICKEST)]
    return tuple(make_case(pages[name], "markdown", "gundam") for name in order)


@contextmanager
def planted(fault: Fault) -> Iterator[Brief]:
    """Give the loaded session with a mistake in it, which is taken out again."""
    _reference()  # found before: it is chosen by how Pillow resizes, which a mistake may change
    with pytest.MonkeyPatch.context() as patch:
        fault.plant(patch, loaded())
        yield loaded()


def hold(subject: Brief, case: Case, upto: Upto, *, always_read: bool = False) -> CaseReport:
    """Hold the subject against the recording of a page, up to its inputs, to prefill or to the end."""
    subject.upto = upto
    exchange = ask(subject, _reference(), case, always_read=always_read, tokenizer=resolve(MINI).tokenizer)
    return judge(exchange, limits_between(subject, _reference(), Setup()))


@cache
def _clean(case: Case) -> tuple[str, ...]:
    report = _held(loaded(), case, "read")
    assert report is not None, case.id
    assert report.passes, case.id
    return tuple(one.measured for one in report.comparisons)


def try_fault(name: str, *, suites: bool = True, before: Outcome | None = None) -> Outcome:
    """Plant a mistake and say what a default run says of it, up to the first page or suite that shows it.

    Args:
        name: the mistake's id.
        suites: ask the suites beside the pages as well.
        before: what was found of it earlier, which is tried first.
    """
    fault = PLANTED[name]
    again = before is not None and before.killed and _again(fault, before)
    if again:
        return again
    measured: dict[Case, tuple[str, ...]] = {}
    upto: Upto = "read" if fault.unseen else FIRST_ASKED.get(fault.stage, "prefill")
    with planted(fault) as subject:  # for all pages, as a mistake may keep something of one for the next
        for case in cases():
            if report := _held(subject, case, upto):
                if found := outcome_of(fault, case.page.stem, report):
                    return found
                measured[case] = tuple(one.measured for one in report.comparisons)
    found = ask_suites(fault) if suites and not fault.equivalent else None
    return found or Outcome(name, False, changed=any(told != _clean(case) for case, told in measured.items()))


def _again(fault: Fault, before: Outcome) -> Outcome | None:
    """Look for a mistake where it was found before."""
    if "::" in before.first:
        return failure(fault, [before.first]) if (CHECKOUT / before.first.partition("::")[0]).exists() else None
    for case in cases():
        if case.page.stem == before.by:
            with planted(fault) as subject:
                report = _held(subject, case, FIRST_ASKED.get(fault.stage, "prefill"))
            return outcome_of(fault, case.page.stem, report) if report else None
    return None


def held_where_found(name: str) -> CaseReport | None:
    """Plant a mistake, and hold the page that the matrix has for it, as far as is needed to see what is wrong."""
    from tests.faults.matrix import known

    fault, by = PLANTED[name], known()[name].by
    for case in cases():
        if case.page.stem == by:
            with planted(fault) as subject:
                return _held(subject, case, FIRST_ASKED.get(fault.stage, "prefill"))
    return None


def _held(subject: Brief, case: Case, upto: Upto) -> CaseReport | None:
    """Hold a page as far as is needed to see what is wrong; None where its inputs are right and no more was asked."""
    first = case == cases()[0]
    report = hold(subject, case, upto, always_read=first)
    if report.divergence is not None or upto == "read":
        return report
    if upto == "prefill":
        return hold(subject, case, "read", always_read=first)
    return None if report.fault is not None and report.fault.stage == "vision" else report
