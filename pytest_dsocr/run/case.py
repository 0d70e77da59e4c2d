"""Run one case: choose limits, ask both sides, compare their answers, explain the first failure, draw the page."""

import logging
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.tolerances import BUDGETS, Budget, Tolerances, tolerances, usual_limits
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.cost.model import PageCost
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.explain import sentence
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.explain.stage_costs import cost_of_stages
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config, Level, Setup, SubjectFaultError
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.subject_result import HALF, ROUNDED_DTYPES
from pytest_dsocr.reference.engine import EngineReference, open_engine_reference
from pytest_dsocr.reference.goldens import recording_places, shipped_folder
from pytest_dsocr.reference.kept import usual_folder
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.opening import WantedReference, open_recorded, open_reference
from pytest_dsocr.reference.protocol import OnProgress, Reference
from pytest_dsocr.reference.recorded_case import CUT
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.parts import COMPARING
from pytest_dsocr.report.pictures import draw
from pytest_dsocr.report.side_files import write_sides
from pytest_dsocr.run.described import noting_errors, seen
from pytest_dsocr.run.described_tensors import descriptions
from pytest_dsocr.run.further import further_causes
from pytest_dsocr.run.reproducers import reproduce
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.protocol import TextSubject
from pytest_dsocr.subjects.readings import Again

LOG = logging.getLogger(__name__)
CPU = "cpu"


def own_limits(config: Config, subject: Any) -> Tolerances:
    """Return the limits for two outputs of the same subject."""
    return tolerances(dtype_of(subject, config.dtype)).but(config.tolerances)


def limits_of(config: Config, subject: Any, reference: Reference, key: RecordingKey) -> Tolerances:
    """Return the limits of a run between the subject, run under ``key``, and the reference."""
    limits = limits_between(subject, reference, key).but(config.tolerances)
    return replace(limits, budget=budget_of(config, subject))


def budget_of(config: Config, subject: Any) -> Budget | None:
    """Return the budget of the precision that the subject declares and of the run; None if there is neither.

    Raises:
        DsocrError: if the declared precision has no budget.
    """
    precision = to_builtin(str(getattr(subject, "precision", "") or ""))
    if precision and precision not in BUDGETS:
        raise DsocrError(f"the subject's precision is {precision!r}; declare one of {', '.join(BUDGETS)}, or none")
    return Budget.of(precision, config.quantization_budget, config.given_by.get("quantization_budget", ""))


def limits_between(subject: Any, reference: Reference, key: RecordingKey) -> Tolerances:
    """Return the limits that follow from both dtypes and keys. Outputs are exact if the keys are the same."""
    made = reference.provenance
    return usual_limits(dtype_of(subject, key.dtype), made.dtype, same_key=key == made.key, on_cpu=made.device == CPU)


def dtype_of(subject: Any, otherwise: str) -> str:
    """Return the dtype in which a subject says that it computes, or ``otherwise``."""
    dtype: str = to_builtin(str(getattr(subject, "dtype", otherwise)))
    return dtype


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
        explanation = sentence.beside(explanation, relations.values(), is_only=not further)
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


def compare_sides(
    case: Case,
    subject: Any,
    reference: Reference,
    resources: RunResources,
    limits: Tolerances,
    *,
    rounding: bool = False,
    always_read: bool = False,
    again: Again | None = None,
) -> CaseReport:
    """Ask both sides about ``case`` and compare their answers. Test each wrong part alone.

    Args:
        rounding: also compare how each stage rounds with the vendor's kernels, and find what each stage spends of the
            budget, if the subject computes in fewer bits than float32 or has a budget.
        always_read: have the subject read the page freely even if a stage is wrong.
        again: reads the page repeatedly.
    """
    tokenizer = resources.checkpoint.tokenizer
    exchange = ask(
        subject, reference, case, always_read=always_read or again is not None, tokenizer=tokenizer, limits=limits
    )
    if rounding and (limits.budget or dtype_of(subject, resources.setup.dtype) in ROUNDED_DTYPES):
        exchange = _with_rounding(exchange, subject, resources.rounder_within(limits.budget))
    if again and exchange.answer.fault is None:
        started = time.perf_counter()
        readings = tuple(again(exchange.answer, exchange.expected))
        subject_s = exchange.subject_s + time.perf_counter() - started
        exchange = replace(exchange, readings=readings, subject_s=subject_s)
    return _substituted(judge(exchange, limits), subject, resources)


def _substituted(report: CaseReport, subject: TextSubject, resources: RunResources) -> CaseReport:
    """Add which parts are right with the reference's tensors, unless an earlier page breaks first in the same stage."""
    if report.divergence is None:
        return report
    place = report.divergence.first.stage, is_cut(report.exchange.expected.inputs.shapes)
    if place in resources.substituted:
        return report
    resources.substituted.add(place)
    found = substitute(subject, report, donor=lambda: resources.donor)
    return replace(report, exchange=replace(report.exchange, **found._asdict())) if found.findings else report


def ask(
    subject: TextSubject,
    reference: Reference,
    case: Case,
    *,
    always_read: bool = False,
    tokenizer: TextTokenizer | None = None,
    limits: Tolerances | None = None,
) -> CaseRun:
    """Ask both sides about ``case``; see :func:`~pytest_dsocr.subjects.follow.run_teacher_forced`.

    If the subject raised, its answer ends there and contains the error.

    Raises:
        ReferenceFaultError: if the reference cannot answer, which is no verdict.
        NotRecordedError: if the reference is a recording without this case.
    """
    started = time.perf_counter()
    expected = reference.observe(case)
    answered = time.perf_counter()
    answer = run_teacher_forced(subject, case, expected, always_read=always_read, tokenizer=tokenizer, limits=limits)
    return CaseRun(case, answer, expected, answered - started, time.perf_counter() - answered)


def _with_rounding(exchange: CaseRun, subject: TextSubject, rounder: Rounder) -> CaseRun:
    """Add how the subject's stages round, and what they spend of a budget; run its vision and prefill once more."""
    answer = exchange.answer
    if answer.input_tensors is None or answer.level < Level.STAGES or answer.fault:
        return exchange
    try:
        places = places_of(exchange.expected.seams, answer.input_tensors)
        rounding = rounder.measure(parts_of(CheckedSubject(subject), answer.input_tensors, places))
        stages = cost_of_stages(rounder.vendor, answer, exchange.expected) if rounder.fewer_bits else {}
        return replace(exchange, answer=replace(answer, rounding=rounding), stages=stages)
    except (SubjectFaultError, MachineError, OutOfMemoryError) as error:
        current().note(f"rounding was not looked at on {answer.case_id}: {str(error).splitlines()[0]}")
        return exchange


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


def reference_of(config: Config, on_progress: OnProgress | None = None) -> Reference:
    """Open the reference of a run, and start a live one, which reports its progress.

    Raises:
        DsocrError: if it cannot be opened.
    """
    named = frozenset(way for way in WAYS if getattr(config, f"reference_{way}"))
    wanted = WantedReference(resolve(config.checkpoint), *config.reference_key, named)
    places = recording_places(config.golden)
    limits = {"time_limit_s": config.time_limit, "start_limit_s": config.start_limit}
    if config.reference == "engine":
        of_this_key = replace(wanted, fixed=WantedReference.fixed)  # the engine answers for cases without a recording
        return open_engine_reference(places, of_this_key, kept_in(config), **limits)
    if config.reference is None:
        return open_recorded(places, wanted)
    reference = open_reference(
        config.reference,
        wanted,
        env=config.vendor_env,
        keep_files=config.out is not None,
        on_progress=on_progress,
        **limits,
    )
    if isinstance(reference, LiveReference):
        reference.start()
    return reference


def answers_of(config: Config) -> tuple[Path, ...]:
    """Return the folders with a reference's answers: goldens, the shipped ones too, and kept answers."""
    named = None if config.kept_answers == "off" else config.kept_answers
    return tuple(filter(None, (config.golden, shipped_folder(), named, usual_folder())))


def kept_in(config: Config) -> Path | None:
    """Return the folder of the engine's kept answers; None if a run keeps none.

    An isolated subject is not trusted, and its process may write this user's files.
    """
    return None if config.isolate or config.kept_answers == "off" else config.kept_answers or usual_folder()
