"""Mistake after mistake planted in one loaded session, and held against the recordings of the quick pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from torch import Tensor

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.resampling import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.names import MINI
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.judge.exchange import CaseReport, ask, judge
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.pages.shipped import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recorded.recording import RecordedReference
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from suites.meta.faults.all import FAULTS
from suites.meta.faults.asked_suites import ask_suites
from suites.meta.faults.outcome import Outcome, outcome_of
from suites.meta.faults.registry import Fault
from suites.meta.recordings import FOLDER, find_recording

ROOT = Path(__file__).parents[3]
PAGES = "dev-3"
Upto = Literal["inputs", "prefill", "read"]
READ_TOKENS = 200
"""A subject in a loop is not read to the end: the longest of these pages has 180."""


FIRST_ASKED: Mapping[str, Upto] = {"tokenizer": "inputs", "decode": "read", "postprocess": "read", "read": "read"}
"""How far a subject is asked at first about a mistake of a stage; where it is right so far, to the end."""


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
def cases() -> tuple[Case, ...]:
    """Give the pages of a default run."""
    return tuple(make_case(page, "markdown", "gundam") for page in shipped(PAGES))


@contextmanager
def planted(fault: Fault) -> Iterator[Brief]:
    """Give the loaded session with a mistake in it, which is taken out again."""
    with pytest.MonkeyPatch.context() as patch:
        fault.plant(patch, loaded())
        yield loaded()


def hold(subject: Brief, case: Case, upto: Upto, *, always_read: bool = False) -> CaseReport:
    """Hold the subject against the recording of a page, up to its inputs, to prefill or to the end."""
    subject.upto = upto
    exchange = ask(subject, _reference(), case, always_read=always_read, tokenizer=resolve(MINI).tokenizer)
    return judge(exchange, tolerances("float32"))


@cache
def _clean(case: Case, always_read: bool) -> tuple[str, ...]:
    report = hold(loaded(), case, "read", always_read=always_read)
    assert report.passes, case.id
    return tuple(one.measured for one in report.comparisons)


def try_fault(name: str, *, suites: bool = True) -> Outcome:
    """Plant a mistake and say what a default run says of it, up to the first page or suite that shows it."""
    fault, measured = FAULTS[name], []
    upto = FIRST_ASKED.get(fault.stage, "prefill")
    with planted(fault) as subject:  # for all pages, as a mistake may keep something of one for the next
        for place, case in enumerate(cases()):
            report = hold(subject, case, upto, always_read=place == 0)
            if report.divergence is None and upto != "read":
                report = hold(subject, case, "read", always_read=place == 0)
            measured.append(tuple(one.measured for one in report.comparisons))
            if found := outcome_of(fault, case.page.stem, report):
                return found
    if suites and not fault.equivalent and (found := ask_suites(fault)):
        return found
    clean = [_clean(case, place == 0) for place, case in enumerate(cases())]
    return Outcome(name, False, changed=measured != clean)
