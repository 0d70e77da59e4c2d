"""Trials of mistakes: each is planted in one loaded engine and compared with recordings of the quick pages."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.parts import ComputedPart, parts_of
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.explain.sentence import of_rounding
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.subject_result import ROUNDED_DTYPES
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.causes import causes_of
from pytest_dsocr.report.outcomes import judged_by_tests
from pytest_dsocr.run.limits import limits_between
from pytest_dsocr.run.sides import ask
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from tests.faults.outcome import Fault, Outcome, outcome_of, stage_of_group
from tests.faults.suites import DEVICE, DTYPE, LEVEL, ask_suites, failure, showing
from tests.recordings import FOLDER
from tests.subjects.spoilt import only

QUICKEST = ("figures_201", "invoice_016")
SETUP = Setup("mini", DEVICE, DTYPE)
READ_TOKENS = 200
"""Largest number of tokens to read, in case a subject loops; the longest of these pages has 180."""
BUDGET_S = 120 if LEVEL is Level.MODULES else float(os.environ.get("DSOCR_FAULTS_S", "20"))
"""CPU seconds of an explanation: more than in a run, as several trials run at once; below L3 as in a run."""


class Brief(EngineSubject):
    """Engine with a limit of tokens to read."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return super().read(page, prompt=prompt, preset=preset, max_new_tokens=min(max_new_tokens, READ_TOKENS))


@cache
def loaded() -> Brief:
    """Return the one engine of this process."""
    return Brief(engine_subject(SETUP).engine)


@cache
def reference() -> RecordedReference:
    """Return the recordings of the embedded checkpoint."""
    return open_recorded([FOLDER], WantedReference(resolve(MINI), SETUP.device, SETUP.dtype, fixed=frozenset()))


@cache
def key() -> RecordingKey:
    """Return the key of the engine."""
    return WantedReference(resolve(MINI), SETUP.device, SETUP.dtype, SETUP.attention).key


@cache
def rounder() -> Rounder:
    """Return the rounder for a subject in fewer bits than float32."""
    return Rounder(SETUP, BUDGET_S)


@cache
def cases() -> tuple[Case, ...]:
    """Return the pages of a default run, first the quickest without and with crops."""
    pages = {page.stem: page for page in shipped("dev-3")}
    names, most = dict.fromkeys((*QUICKEST, *pages)), None if LEVEL is Level.MODULES else READ_TOKENS
    return tuple(make_case(pages[name], "markdown", "gundam", most, family=DEEPSEEK_OCR) for name in names)


@contextmanager
def planted(fault: Fault) -> Iterator[Brief]:
    """Yield the loaded engine with a mistake, and remove the mistake afterwards."""
    reference()  # chosen by how Pillow resizes, which a mistake may change
    with Changes() as changes:
        fault.put(loaded(), changes)
        yield loaded()


def judged(case: Case, level: Level) -> CaseReport:
    """Compare what the loaded engine shows at a level with the recording of a page."""
    asked = ask(only(loaded(), level), reference(), case, tokenizer=resolve(MINI).tokenizer)
    return judge(asked, tolerances("float32"))


def hold(subject: Brief, case: Case) -> CaseReport:
    """Compare the subject with the recording of a page; read the first page even if a stage is wrong."""
    always_read, tokenizer = case == cases()[0], resolve(MINI).tokenizer
    exchange = ask(showing(subject), reference(), case, always_read=always_read, tokenizer=tokenizer)
    return judge(exchange, limits_between(subject, reference(), key()))


def _held(fault: Fault) -> Generator[CaseReport]:
    """Yield the report of each page; in fewer bits than float32 with its rounding, up to the first wrong page."""
    held, is_rounded = list[tuple[CaseReport, list[ComputedPart]]](), SETUP.dtype in ROUNDED_DTYPES
    with planted(fault) as subject:  # a mistake may keep values from one page to the next
        for case in cases():
            report = hold(subject, case)
            answer = report.exchange.answer
            if not is_rounded or answer.fault or answer.input_tensors is None:
                yield report
                continue
            held.append((report, parts_of(CheckedSubject(subject), answer.input_tensors)))
            if not report.passes:
                break
    rounder().forget()
    for report, parts in held:
        answer = replace(report.exchange.answer, rounding=rounder().measure(parts))
        yield judge(replace(report.exchange, answer=answer), report.limits)


def try_fault(fault: Fault, explainer: Explainer, *, suites: bool) -> Outcome | None:
    """Plant a mistake; return the outcome of the first page or suite that shows it, or None."""
    if suites and "::" in fault.shows and (found := failure(fault, [fault.shows])):
        return found
    with closing(_held(fault)) as reports:
        pages = ((report, outcome_of(fault, report.case.page.stem, report)) for report in reports)
        shown = next(((report, found) for report, found in pages if found), None)
    if shown is None:
        return ask_suites(fault) if suites else None
    return _explained(fault, *shown, explainer)


def try_at_level(fault: Fault, explainer: Explainer) -> Outcome | None:
    """Plant a mistake in a subject of a lower level; return the outcome of a run, or None."""
    asking = Explainer(SETUP, BUDGET_S)  # an explainer remembers earlier mistakes
    asking._client, reports = explainer._client, list(_held(fault))
    found = next((found for one in reports if (found := outcome_of(fault, one.case.page.stem, one))), None)
    said = [asking.explain(report) for report in reports]
    explained = [
        replace(one, exchange=replace(one.exchange, explanation=by)) for one, by in zip(reports, said, strict=True)
    ]
    broken = causes_of([judged_by_tests(CaseResult.of(one, place=at), ()) for at, one in enumerate(explained)], ())
    if found is None or not broken:
        return found or ask_suites(fault)
    words = "\n".join(f"{one.case.page.stem}: {by.text}" for one, by in zip(reports, said, strict=True) if by)
    ids = next((one.mistakes for one in said if one and one.text == broken[0].why), ())
    return replace(
        found,
        hint=broken[0].why,
        explained=words,
        proven=broken[0].proven,
        named=fault.mistake.removeprefix("steps.") in {one.removeprefix("steps.") for one in ids},
        mistakes=" ".join(ids),
        stage_right=bool(ids) and {stage_of_group(one.partition(".")[0]) for one in ids} == {fault.stage},
    )


def _explained(fault: Fault, report: CaseReport, found: Outcome, explainer: Explainer) -> Outcome:
    question = question_of(report, BUDGET_S)
    answer = of_rounding(report) or (explainer.answered(question) if question else None)
    if answer is None:
        return found
    named = fault.mistake.removeprefix("steps.") in {one.removeprefix("steps.") for one in answer.mistakes}
    return replace(found, explained=answer.text, proven=answer.is_proven, named=answer.is_proven and named)
