"""Run one case: choose limits, ask both sides, compare their answers, explain the first failure, draw the page."""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.compare.case import CaseReport, CaseRun
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.model import PageCost
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.explain import sentence
from pytest_dsocr.explain.question import TEXT
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config, Level, Setup
from pytest_dsocr.records.subject_result import HALF
from pytest_dsocr.reference.engine import EngineReference
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.reference.recorded_case import CUT
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.parts import COMPARING
from pytest_dsocr.report.pictures import draw
from pytest_dsocr.report.side_files import write_sides
from pytest_dsocr.run.described import noting_errors, seen
from pytest_dsocr.run.described_tensors import descriptions
from pytest_dsocr.run.further import further_causes
from pytest_dsocr.run.limits import CPU, dtype_of, limits_of
from pytest_dsocr.run.reproducers import reproduce
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.sides import compare_sides
from pytest_dsocr.run.told import with_told
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.readings import Again

LOG = logging.getLogger(__name__)


def run_case(
    case: Case,
    place: int,
    subject: Any,
    reference: Reference,
    config: Config,
    elapsed: Elapsed,
    resources: RunResources,
    again: Again | None = None,
) -> tuple[CaseReport, CaseResult]:
    """Run a case under the run's own limits; return its report, and its part of the run's result.

    Args:
        place: place among the run's cases. The subject always reads the first page freely as well: nothing else proves
            that ``read`` uses the stages.
        elapsed: takes the seconds of each part.
        again: reads the page repeatedly, if the run asks for it.

    Raises:
        DsocrError: if the reference cannot answer, both sides would be the engine, or the subject offers less than the
            run promises.
    """
    if isinstance(reference, EngineReference):
        reference.check_other_than(subject, config.subject, case)
    limits, explainer = limits_of(config, subject, reference, resources.key), resources.explainer
    half = resources.half if dtype_of(subject, config.dtype) == HALF else None
    with elapsed.on(COMPARING):
        if half:
            half.check_reference(case, subject, reference)
        is_in_range = half is None or half.of_vendor(case).overflow is None
        sides = (case, subject, reference, resources)
        report = compare_sides(*sides, limits, rounding=is_in_range, always_read=place == 0, again=again)
        if half:
            half.check_report(report, subject)
        elapsed.move("subject", report.exchange.subject_s)
        elapsed.move("reference", report.exchange.reference_s)
    absent = promised_and_absent(config.level, report)
    if absent and report.divergence is None:
        raise DsocrError(f"the run promises {config.level}, and the subject does not offer {absent} of {case.id}")
    _note(report.exchange, resources.checkpoint.tokenizer.special.eos)
    if half and (other := reference.provenance.dtype) != HALF:
        current().note(f"the subject computes in {HALF}, the reference in {other}; limits are those of {limits.dtype}")
    with elapsed.on("explaining" if report.divergence or explainer.left else COMPARING):
        report = with_told(report, subject, resources.vocabulary.tokenizer)
        known = sentence.of_readings(report) or (half.explained(report, subject) if half else None)
        explanation = known or sentence.of_rounding(report) or explainer.explain(report)
        resources.pages[case.id] = seen(report)
        with noting_errors():
            relations = descriptions(report, subject, resources)
        resources.read.append(case)
        reproduce(report, config.out)
        report = replace(report, exchange=replace(report.exchange, explanation=explanation, described=relations))
        with noting_errors():
            further = further_causes(report, subject, resources)
        is_only = all(one.what == TEXT for one in further)
        explanation = sentence.beside(explanation, relations.values(), is_only=is_only)
        report = replace(report, exchange=replace(report.exchange, explanation=explanation, further=further))
    with elapsed.on("drawing"):
        picture = _drawn(report, config.out) if config.out else None
    made, cost = reference.provenance, _cost(report.exchange, config.setup)
    keys = {"same_key": resources.key == made.key, "on_cpu": made.device == CPU}
    return report, CaseResult.of(report, place=place, picture=picture, cost=cost, **keys)


def _cost(exchange: CaseRun, setup: Setup) -> dict[str, int] | None:
    """Return what the reference's output of a page costs by arithmetic; None of several pages together."""
    case, inputs, tokens = exchange.case, exchange.expected.inputs, len(exchange.expected.steps)
    if case.is_several:
        return None
    how = (len(inputs.prompt_ids) - inputs.image_tokens, tokens, setup.dtype, setup.attention)
    work = Workload(load_image(case.page).size, case.preset, *how)
    return asdict(PageCost.of(architecture_of(setup.checkpoint), work))


def promised_and_absent(promised: Level | None, report: CaseReport) -> str:
    """Name what the run's level promises and the subject did not offer for this case.

    Steps after a tie are not promised: there a subject that cannot be teacher-forced continues after its own token.
    """
    answer = report.exchange.answer
    if promised is None or answer.fault:
        return ""
    is_tied = any(one.verdict is Verdict.TIE_FLIP for one in report.of("tokens"))
    absent = {*answer.lost, *answer.not_offered} - {"dtypes", "step" if is_tied else ""}
    asked = {Level.TEXT: {"read"}, Level.INPUTS: {"read", *TENSORS}}.get(promised, absent)
    return ", ".join(sorted(absent & asked))


def _note(exchange: CaseRun, eos: int) -> None:
    """Log the shapes of both sides' inputs; note if less than a whole output is compared."""
    expected, actual = exchange.expected, exchange.answer.inputs
    if expected.steps and expected.steps[-1].token != eos:
        limit = exchange.case.max_new_tokens
        current().note(f"an output of the reference ended at the limit of {limit} tokens: what follows is not compared")
    if expected.provenance and CUT in expected.provenance.overrides:
        current().note(f"recordings are {CUT}")
    for side, inputs in (("reference", expected.inputs), ("subject", actual)):
        shapes = ", ".join(f"{name} {shape}" for name, shape in (inputs.shapes if inputs else {}).items())
        LOG.info("%s, inputs of the %s: %s", exchange.case.id, side, shapes or "not offered")


def _drawn(report: CaseReport, folder: Path) -> str | None:
    """Draw the page with both sides' boxes and keep both outputs; a failure to do so is only noted."""
    try:
        picture = draw(report, folder).relative_to(folder).as_posix()
    except DsocrError as error:
        current().note(f"there is no picture of {report.case.id}: {error}")
        return None
    try:
        write_sides(report, (folder / picture).with_suffix(""))
    except DsocrError as error:
        current().note(f"what both sides read of {report.case.id} is not kept: {error}")
    return picture
