"""What a judged case asks: where it first breaks, and what the subject gave there and around it."""

from __future__ import annotations

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import COMPARED, PIXELS
from pytest_dsocr.explain.question import HeardStep, Question, Summary
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.observation import Observation, Seam
from pytest_dsocr.observation.packing import pack_inputs
from pytest_dsocr.reference.protocol import pack_case


def question_of(report: CaseReport, budget_s: float) -> Question | None:
    """Give the question of a case's first divergence; None where nothing is WRONG, or what is needed is missing."""
    divergence, exchange = report.divergence, report.exchange
    if divergence is None:
        return None
    what, answer, theirs = divergence.begins or divergence.first.what, exchange.answer, exchange.expected
    if what in COMPARED and answer.inputs is None:
        return None
    best = answer.prefill_best
    return Question(
        case=_packed(report),
        what=what,
        level=int(answer.level),
        budget_s=budget_s,
        near=tolerances(report.limits.dtype).seam,
        inputs=None if answer.inputs is None else pack_inputs(answer.inputs)[0],
        seams={name: Summary.of(seam) for name, seam in _seams(what, answer).items()},
        steps=_steps(answer, theirs),
        reference_tokens=theirs.token_ids,
        best={} if best is None else dict(zip(best.ids, best.logits, strict=True)),
        text=answer.text,
        mmd=answer.mmd,
    )


def _packed(report: CaseReport) -> dict[str, object]:
    packed = pack_case(report.case)
    return {**packed, "preset": dict(packed["preset"])}


def _seams(what: str, answer: Answer) -> dict[str, Seam]:
    """Give the seams of the stage that broke, or the pixels."""
    if what in PIXELS:
        tensors = answer.input_tensors or {}
        return {what: Seam.of(tensors[what])} if what in tensors else {}
    whole = what.partition("/")[0]
    return {name: seam for name, seam in answer.seams.items() if name.partition("/")[0] == whole}


def _steps(answer: Answer, theirs: Observation) -> tuple[HeardStep, ...]:
    heard = []
    for mine, step in zip(answer.forced or (), theirs.steps, strict=False):
        best = mine.at_hand(step)
        heard.append(HeardStep(mine.token, step.token, tuple(best.ids), tuple(best.logits)))
    return tuple(heard)
