"""Results of an engine as a reference for tests, computed without ``subjects.follow``."""

from dataclasses import replace
from typing import Any

from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import generate
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.reference_result import (
    BEST_OF_PREFILL,
    Best,
    InputsDigest,
    Output,
    ReferenceResult,
    Seam,
    Step,
)
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.loading import close_subject, open_subject
from pytest_dsocr.subjects.protocol import Setup

LIMITS = tolerances("float32")


def seen(engine: Engine[Any], case: Case, *, keep_values: bool = False) -> ReferenceResult:
    """Read ``case`` freely and return every observation."""
    inputs = engine.prepare(case.page, prompt=case.prompt, preset=case.preset)
    state = engine.prefill(inputs)
    tensors = {name: tensor for vision in state.visions for name, tensor in vision.seams.items()}
    tensors["prefill"] = state.logits[0].clone()
    policy = replace(engine.policy, max_new_tokens=case.max_new_tokens)
    tokens = generate(engine.pipeline, state, [inputs.input_ids[0].tolist()], policy, engine.tokenizer.special.pad)
    steps = tuple(Step(token, Best.of(state.logits[0])) for [token] in tokens)
    return ReferenceResult(
        case_id=case.id,
        inputs=InputsDigest.of(inputs.tensors, keep_values=keep_values),
        seams={name: Seam.of(tensor, keep_values=keep_values) for name, tensor in tensors.items()},
        prefill_best=Best.of(tensors["prefill"], BEST_OF_PREFILL),
        steps=steps,
        output=Output.of(engine.tokenizer.decode([step.token for step in steps]), case.page, DEEPSEEK_OCR.form),
    )


def judged(
    subject: Any, case: Case, expected: ReferenceResult, limits: Tolerances = LIMITS, *, always_read: bool = False
) -> CaseReport:
    """Lead a subject along what was seen of a case, and judge it."""
    answer = run_teacher_forced(subject, case, expected, always_read=always_read)
    return judge(CaseRun(case, answer, expected, 0.0, 0.0), limits)


def held_to(expected: ReferenceResult, case: Case, spec: str, isolated_s: float | None = None) -> CaseReport:
    """Hold a subject, by its name and on the smallest synthetic checkpoint, to what was seen of a case."""
    subject = open_subject(spec, Setup("synthetic:tiny"), isolated_s)
    report = judged(subject, case, expected, always_read=True)
    close_subject(subject)
    return report


def compared(report: CaseReport) -> set[str]:
    """Return the names of what was compared."""
    return {one.what for one in report.comparisons if one.verdict is not Verdict.NOT_COMPARED}
