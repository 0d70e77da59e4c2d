"""Both sides of a case: ask them, compare their answers, and test each wrong part alone."""

import time
from dataclasses import replace
from typing import Any

from torch import OutOfMemoryError

from pytest_dsocr.base.errors import MachineError, has_ended_cuda
from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.explain.stage_costs import cost_of_stages
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.records.passes import places_of
from pytest_dsocr.records.subject_result import ROUNDED_DTYPES
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.run.limits import dtype_of
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.protocol import TextSubject
from pytest_dsocr.subjects.readings import Again


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
    if has_ended_cuda(exchange.answer.fault):
        unread = replace(exchange.answer, input_tensors=None, vision_tensors=None)  # they may be on the lost device
        return judge(replace(exchange, answer=unread), limits)
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
