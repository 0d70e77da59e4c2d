"""Replace the subject's tensors by the reference's, to find the parts that cause a difference.

Parts after the first wrong seam may only receive wrong tensors, or be wrong as well. A correct part gives correct
results as soon as it receives the reference's inputs or vision features.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport, CaseRun, judge
from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.observations import DECODING
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.models import VISION
from pytest_dsocr.records.config import NotOfferedError, SubjectFaultError
from pytest_dsocr.records.names import ComparisonKind, TensorName
from pytest_dsocr.records.reference_result import BEST_OF_PREFILL, Best, Seam
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import digest, keeps_values
from pytest_dsocr.subjects.forced_steps import forced_steps, steps_along, without_padding
from pytest_dsocr.subjects.protocol import StagedSubject, TextSubject

Donor = Callable[[], StagedSubject]
"""Factory of a subject that supplies tensors for a recording, if they agree with it."""

TOKENS = ("prefill", *DECODING)
FIRST_LAYER = str(TensorName("prefill", block=0))
ROUNDING = tolerances("float32").seam
"""Largest difference between a donor's features and the recorded ones, independent of the run's limits."""


@dataclass(frozen=True, eq=False)
class Lent:
    """Tensors of the reference, or of a donor that agrees with its recording; None if unavailable."""

    inputs: Mapping[str, Tensor] | None = None
    vision_fusion: Tensor | None = None


class Substituted(NamedTuple):
    """Findings from the reference's tensors."""

    findings: tuple[str, ...] = ()
    """A sentence for each part that is right, or still wrong."""
    alone: Mapping[str, bool] = {}
    """Stages that received right tensors, and whether they are right."""


def substitute(subject: TextSubject, report: CaseReport, donor: Donor | None = None) -> Substituted:
    """Return which parts are right, or still wrong, with the reference's tensors.

    Return nothing if the subject has no stages, has no wrong stage or raised, or if no tensors are available. A
    recording has no tensors; ``donor`` supplies them, if they agree with it.

    Args:
        donor: loads an engine on the same checkpoint; called only for a recording, and only if a stage is wrong.
    """
    if report.fault is not None:
        return Substituted()
    wrong = _wrong(report)
    if not wrong & {*VISION, *TOKENS}:
        return Substituted()
    found: list[str] = []
    with torch.no_grad():
        trial = _Trial(CheckedSubject(subject), report, _lent(report.exchange, donor))
        try:
            with suppress(NotOfferedError):  # it takes no tensors
                found.extend(trial.findings(wrong))
        except SubjectFaultError as error:
            found.append(f"the subject failed with the reference's tensors: {error}")
    return Substituted(tuple(found), trial.alone)


@dataclass(frozen=True, eq=False)
class _Trial:
    asked: CheckedSubject
    report: CaseReport
    lent: Lent
    alone: dict[str, bool] = field(default_factory=dict)
    """Stages that received right tensors, and whether they are right."""

    def findings(self, wrong: set[str]) -> Iterator[str]:
        own = self.asked.inputs(self.report.exchange.case)
        inputs, given = own, "the reference's vision features"
        if self.lent.inputs is not None and wrong & {*COMPARED}:
            lent = {name: tensor.to(own[name].device) for name, tensor in self.lent.inputs.items()}
            inputs, given = {**own, **lent}, "the reference's inputs and vision features"
            vision = self.asked.vision(inputs, partial=True)
            if wrong & {*VISION}:
                right = self._is_right(VISION, vision)
                self.alone.update(dict.fromkeys(VISION, right))
                yield _finding("vision is", "the reference's inputs", right, ": vision is wrong by itself")
            if wrong & {*TOKENS}:
                right = self._decodes(inputs, vision.get("vision_fusion"))
                yield _finding("tokens are", "the reference's inputs", right)
                if right:
                    self.alone.update(dict.fromkeys(TOKENS, right))
                    return
        if self.lent.vision_fusion is not None and wrong & {*TOKENS}:
            right = self._decodes(inputs, self._fusion(own))
            self.alone.update(dict.fromkeys(TOKENS, right))
            passed = {one.what for one in self.report.comparisons if one.passes}
            part = "the decoder" if FIRST_LAYER in passed else "the decoder, or what puts features into the prompt,"
            yield _finding("tokens are", given, right, f": {part} is wrong by itself")

    def _fusion(self, own: Mapping[str, Tensor]) -> Tensor | None:
        actual, lent = self.report.exchange.answer.seams.get("vision_fusion"), self.lent.vision_fusion
        dtype = getattr(torch, actual.dtype) if actual else None
        return None if lent is None else lent.to(own["input_ids"].device, dtype)

    def _decodes(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> bool:
        state, logits = self.asked.prefill(inputs, vision_fusion)
        expected = self.report.exchange.expected.steps
        steps = forced_steps(self.asked, inputs, expected, self.report.exchange.case.family)
        steps_along(self.asked, state, logits, expected, steps)
        compared = without_padding(logits, self.report.exchange.expected)
        best = Best.of(compared, BEST_OF_PREFILL)
        return self._is_right(TOKENS, {"prefill": compared}, prefill_best=best, forced=steps.fetch())

    def _is_right(self, stages: tuple[str, ...], tensors: Mapping[str, Tensor], **parts: object) -> bool:
        keep = keeps_values(self.report.exchange.expected)
        seams = {name: Seam.of(tensor, keep_values=keep) for name, tensor in tensors.items()}
        answer = replace(self.report.exchange.answer, seams=seams, **parts)  # type: ignore[arg-type]
        return not _wrong(judge(replace(self.report.exchange, answer=answer), self.report.limits)) & {*stages}


def _wrong(report: CaseReport) -> set[str]:
    """Name the stages with a seam that is wrong or missing, without their rounding and their single blocks."""
    failed = (one for one in report.comparisons if not one.passes and one.name.kind is not ComparisonKind.ROUNDING)
    return {one.stage for one in failed if one.tensor.block is None}


def _lent(exchange: CaseRun, donor: Donor | None) -> Lent:
    expected = exchange.expected
    fused = expected.seams.get("vision_fusion")
    if keeps_values(expected):
        return Lent(expected.inputs.values, fused.values if fused else None)
    return _of_donor(CheckedSubject(donor()), exchange) if donor else Lent()


def _of_donor(donor: CheckedSubject, exchange: CaseRun) -> Lent:
    """Return those of the donor's tensors that equal the recorded ones up to rounding."""
    expected = exchange.expected
    try:
        inputs = donor.inputs(exchange.case)
        if any(one.verdict is not Verdict.MATCH for one in compare_inputs(digest(inputs, expected), expected.inputs)):
            return Lent()
        fused = donor.vision(inputs).get("vision_fusion")
    except SubjectFaultError:  # the donor may share the subject's broken code
        return Lent()
    actual = None if fused is None else Seam.of(fused)
    compared = compare_seam("vision_fusion", actual, expected.seams.get("vision_fusion"), ROUNDING)
    return Lent(inputs, fused if compared.verdict in (Verdict.MATCH, Verdict.DRIFT) else None)


def _finding(part: str, given: str, right: bool, otherwise: str = "") -> str:
    return f"{part} right when given {given}" if right else f"{part} still wrong when given {given}{otherwise}"
