"""One case from start to end: both sides run, limits chosen, answers judged, the first break explained, all drawn."""

import logging
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.tolerances import BUDGETS, OF_ONE_KEY, Budget, Tolerances, tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.cost.model import PageCost
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.explain.explainer import Explainer, explained_by_readings
from pytest_dsocr.explain.rounding import Rounder, explained_by_rounding, parts_of
from pytest_dsocr.explain.stage_costs import cost_of_stages
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Config, Level, Setup, SubjectFaultError
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.subject_result import ROUNDED_DTYPES
from pytest_dsocr.reference.engine import EngineReference, open_engine_reference
from pytest_dsocr.reference.goldens import recording_places
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.nearest import WAYS
from pytest_dsocr.reference.opening import WantedReference, open_recorded, open_reference
from pytest_dsocr.reference.protocol import OnProgress, Reference
from pytest_dsocr.reference.recorded_case import CUT
from pytest_dsocr.report.parts import COMPARING
from pytest_dsocr.report.payload import CasePayload, of_case
from pytest_dsocr.report.pictures import draw, side_folder, write_sides
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import engine_subject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.protocol import TextSubject
from pytest_dsocr.subjects.readings import Again


@cache
def key_of(setup: Setup) -> RecordingKey:
    """Return the key of the subject; once, for every test asks, and the real vocabulary takes a third of a second."""
    return WantedReference(resolve(setup.checkpoint), setup.device, setup.dtype, setup.attention).key


def own_limits(config: Config, subject: Any) -> Tolerances:
    """Return how far a subject may be from itself."""
    return tolerances(dtype_of(config.setup, subject)).but(config.tolerances)


def limits_of(config: Config, subject: Any, reference: Reference) -> Tolerances:
    """Return how far the sides may be apart: outputs are exact where their keys are the same."""
    limits = limits_between(subject, reference, config.setup).but(config.tolerances)
    return replace(limits, budget=budget_of(config, subject))


def budget_of(config: Config, subject: Any) -> Budget | None:
    """Return what may be lost: by the precision that the subject declares, and by the run; None where neither says.

    Raises:
        DsocrError: where it declares a precision that has no budget.
    """
    precision = to_builtin(str(getattr(subject, "precision", "") or ""))
    if precision and precision not in BUDGETS:
        raise DsocrError(f"the subject's precision is {precision!r}; declare one of {', '.join(BUDGETS)}, or none")
    return Budget.of(precision, config.quantization_budget, config.given_by.get("quantization_budget", ""))


def limits_between(subject: Any, reference: Reference, setup: Setup) -> Tolerances:
    """Return the limits that follow from the sides' dtypes and keys alone."""
    made = reference.provenance
    is_same = key_of(setup) == made.key
    limits = tolerances(dtype_of(setup, subject), made.dtype, same_key=is_same)
    return limits.but(OF_ONE_KEY.get(limits.dtype, {})) if is_same and made.device == "cpu" else limits


def dtype_of(setup: Setup, subject: Any) -> str:
    """Return what a subject computes in; the run's dtype where it does not say."""
    dtype: str = to_builtin(str(getattr(subject, "dtype", setup.dtype)))
    return dtype


LOG = logging.getLogger(__name__)


def run_case(
    case: Case,
    place: int,
    subject: Any,
    reference: Reference,
    config: Config,
    elapsed: Elapsed,
    explainer: Explainer,
    again: Again | None = None,
) -> tuple[CaseReport, CasePayload]:
    """Run a case under the run's own limits; return its report, and what the run's result holds of it.

    Args:
        case: to be run.
        place: where it stands among the run's cases. Of the first the subject always reads the page by itself as well:
            nothing else proves that ``read`` uses the stages.
        subject: the implementation under test.
        reference: what it is compared with.
        config: of the run.
        elapsed: takes the seconds of each part.
        explainer: of the run; it tries the known mistakes at the first case of each stage.
        again: reads the page again and again, where the run asks for it.

    Raises:
        DsocrError: where the reference cannot answer, both sides would be the engine, or the run promises more.
    """
    if isinstance(reference, EngineReference):
        reference.check_other_than(subject, config.subject, case)
    limits = limits_of(config, subject, reference)
    with elapsed.on(COMPARING):
        fewer_bits = limits.budget is not None and "kl" in limits.budget.allowed
        rounder = _rounder(config.setup, config.explain, fewer_bits)
        sides = (case, subject, reference, config.setup)
        report = compare_sides(*sides, limits, rounder, always_read=place == 0, again=again)
        elapsed.move("subject", report.exchange.subject_s)
        elapsed.move("reference", report.exchange.reference_s)
    absent = promised_and_absent(config.level, report)
    if absent and report.divergence is None:
        raise DsocrError(f"the run promises {config.level}, and the subject does not offer {absent} of {case.id}")
    _note(report.exchange, _tokenizer(config.setup.checkpoint).special.eos)
    with elapsed.on("explaining" if report.divergence or explainer.left else COMPARING):
        explanation = explained_by_readings(report) or explained_by_rounding(report) or explainer.explain(report)
        report = replace(report, exchange=replace(report.exchange, explanation=explanation))
    with elapsed.on("drawing"):
        picture = _drawn(report, config.out) if config.out else None
    payload = of_case(report, place=place, picture=picture)
    payload["cost"] = _cost(report.exchange, config.setup)
    return report, payload


def _cost(exchange: CaseRun, setup: Setup) -> dict[str, int] | None:
    """Return what the reference's output of a page costs by arithmetic; None of several pages together."""
    case, inputs, tokens = exchange.case, exchange.expected.inputs, len(exchange.expected.steps)
    if case.is_several:
        return None
    how = (len(inputs.prompt_ids) - inputs.image_tokens, tokens, setup.dtype, setup.attention)
    work = Workload(load_image(case.page).size, case.preset, *how)
    return asdict(PageCost.of(architecture_of(setup.checkpoint), work))


def promised_and_absent(promised: Level | None, report: CaseReport) -> str:
    """Name what a run's level promises of a subject, which turned out not to offer it of this case.

    Steps after a tie are not promised: a subject that cannot be led goes on behind its own token there.
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
    setup: Setup,
    limits: Tolerances,
    rounder: Rounder | None = None,
    *,
    always_read: bool = False,
    again: Again | None = None,
) -> CaseReport:
    """Ask both sides about ``case`` and judge them, with what the reference's tensors tell where something is wrong.

    With a ``rounder`` a subject in fewer bits than float32, or with a budget, is also held to how the vendor's kernels
    round, and what each stage spends of a budget is found. With ``again`` the page is read several times.
    """
    tokenizer = _tokenizer(setup.checkpoint)
    exchange = ask(subject, reference, case, always_read=always_read or again is not None, tokenizer=tokenizer)
    if rounder and (limits.budget is not None or dtype_of(setup, subject) in ROUNDED_DTYPES):
        exchange = _with_rounding(exchange, subject, rounder)
    if again and exchange.answer.fault is None:
        started = time.perf_counter()
        readings = tuple(again(exchange.answer, exchange.expected))
        subject_s = exchange.subject_s + time.perf_counter() - started
        exchange = replace(exchange, readings=readings, subject_s=subject_s)
    report = judge(exchange, limits)
    findings = substitute(subject, report, donor=lambda: _donor(setup))
    return replace(report, exchange=replace(exchange, findings=findings)) if findings else report


def ask(
    subject: TextSubject,
    reference: Reference,
    case: Case,
    *,
    always_read: bool = False,
    tokenizer: TextTokenizer | None = None,
) -> CaseRun:
    """Ask both sides about ``case``; see :func:`~pytest_dsocr.subjects.follow.run_teacher_forced`.

    Where the subject raised, its answer holds what it said until then, and the error.

    Raises:
        ReferenceFaultError: where the reference cannot answer, which is no verdict.
        NotRecordedError: where the reference is a recording without this case.
    """
    started = time.perf_counter()
    expected = reference.observe(case)
    answered = time.perf_counter()
    answer = run_teacher_forced(subject, case, expected, always_read=always_read, tokenizer=tokenizer)
    return CaseRun(case, answer, expected, answered - started, time.perf_counter() - answered)


def _with_rounding(exchange: CaseRun, subject: TextSubject, rounder: Rounder) -> CaseRun:
    """Add how the stages of a subject round, and what they spend; it runs vision and the prompt once more for it."""
    answer = exchange.answer
    if answer.input_tensors is None or answer.level < Level.STAGES or answer.fault:
        return exchange
    try:
        rounding = rounder.measure(parts_of(CheckedSubject(subject), answer.input_tensors))
        stages = cost_of_stages(rounder.vendor, answer, exchange.expected) if rounder.fewer_bits else {}
        return replace(exchange, answer=replace(answer, rounding=rounding), stages=stages)
    except (SubjectFaultError, MachineError, OutOfMemoryError) as error:
        current().note(f"rounding was not looked at on {answer.case_id}: {str(error).splitlines()[0]}")
        return exchange


def _note(exchange: CaseRun, eos: int) -> None:
    """Log the shapes of both sides' inputs, and note where less than a whole output is compared."""
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
    """Draw the page with both sides' boxes, and keep what both read; a missing picture must not cost a comparison."""
    try:
        picture = draw(report, folder).relative_to(folder).as_posix()
    except DsocrError as error:
        current().note(f"there is no picture of {report.case.id}: {error}")
        return None
    try:
        write_sides(report, folder / side_folder(report.case.id))
    except DsocrError as error:
        current().note(f"what both sides read of {report.case.id} is not kept: {error}")
    return picture


@cache
def _tokenizer(checkpoint: str) -> TextTokenizer:
    return resolve(checkpoint).tokenizer


_rounder = cache(Rounder)
_donor = cache(engine_subject)
"""Loads the engine whose tensors are given to a wrong subject; once, as it may be of full size."""


def reference_of(config: Config, on_progress: OnProgress | None = None) -> Reference:
    """Open the reference of a run. A live one is ready to answer.

    Args:
        config: of the run.
        on_progress: called with the progress of a live one.

    Raises:
        DsocrError: if it cannot be opened.
    """
    named = frozenset(way for way in WAYS if getattr(config, f"reference_{way}"))
    wanted = WantedReference(resolve(config.checkpoint), *config.reference_key, named)
    places = recording_places(config.golden)
    limits = {"time_limit_s": config.time_limit, "start_limit_s": config.start_limit}
    if config.reference == "engine":
        to_builtin = replace(
            wanted, fixed=WantedReference.fixed
        )  # what is not recorded of this key, the engine answers
        return open_engine_reference(places, to_builtin, **limits)
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
