"""The question about a judged case that goes to the explaining process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import torch
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED, PIXELS
from pytest_dsocr.describe.several_texts import Told
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.packing import pack_inputs
from pytest_dsocr.records.reference_result import Best, Seam, Step
from pytest_dsocr.records.subject_result import ForcedStep, SubjectResult
from pytest_dsocr.reference.protocol import pack_case

TEXT = "text"
BY_TEXT = ("read", TEXT, "spans", "boxes")
"""Comparisons that a text alone decides."""


@dataclass(frozen=True)
class PageRead:
    """A page and the text that the subject read."""

    case: Mapping[str, Any]
    """See :func:`~pytest_dsocr.reference.protocol.pack_case`."""
    text: str
    reference_tokens: tuple[int, ...]
    tokens: int = 0
    """Number of the reference's tokens with those of the prompt: the cost of a page."""
    is_right: bool = False
    """Whether the page passes."""
    is_cut: bool = False
    """Whether the page has crops."""
    told: tuple[Told, ...] = ()
    """Texts that ``text_of`` made of right tokens, if it is what gave the wrong text."""

    @classmethod
    def of(cls, report: CaseReport) -> PageRead:
        """Return the page of a judged case."""
        packed, exchange = pack_case(report.case), report.exchange
        case, said = {**packed, "preset": dict(packed["preset"])}, exchange.expected.token_ids
        inputs, is_right = exchange.expected.inputs, report.divergence is None
        tokens = len(said) + sum(count for _, count in inputs.input_ids)
        return cls(case, exchange.answer.text, said, tokens, is_right, is_cut(inputs.shapes), exchange.told)


@dataclass(frozen=True)
class Question:
    """A case's first divergence, and the subject's tensors."""

    page: PageRead
    what: str
    """Comparison that breaks first, or where its error begins."""
    level: int
    budget_s: float
    near: float
    """Largest relative error of a tensor that counts as reproduced: rounding."""
    ordinary: float = 0.0
    """Largest relative error of correct implementations."""
    inputs: Mapping[str, Any] | None = None
    """Digests of the subject's inputs."""
    seams: Mapping[str, Seam] = field(default_factory=dict)
    """The subject's tensors of the stage that broke, or its pixels."""
    steps: tuple[tuple[ForcedStep, Step], ...] = ()
    """The subject's steps and the reference's."""
    best: Best | None = None
    """The subject's logits of the best first tokens."""
    mmd: str | None = None
    others: tuple[PageRead, ...] = ()
    """Pages that were read before; only for a text."""
    only: tuple[str, ...] = ()
    """Ids of the mistakes that explain ``others``; they are tried first."""
    places: int = 0
    """Number of places on ``others`` that only these mistakes explain."""
    done: tuple[str, ...] | None = ()
    """Ids of the mistakes that were tried on ``others``; None to try no new ones."""

    def pack(self) -> dict[str, Any]:
        """Return the question as JSON values."""
        packed: dict[str, Any] = msgspec.to_builtins(self, str_keys=True, enc_hook=Tensor.tolist)
        return packed

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> Question:
        """Return the question of JSON values."""
        return msgspec.convert(packed, cls, str_keys=True, dec_hook=lambda _, values: torch.tensor(values))


@dataclass(frozen=True)
class Trail:
    """A judged case from its first divergence on."""

    question: Question
    """The question about the first divergence, with every seam of the subject."""
    found: tuple[str, ...]
    """Ids of the mistakes that reproduce the first wrong values."""
    partly: tuple[str, ...]
    """Ids of the mistakes that come nearer to them, if none reproduces them."""
    inputs: Mapping[str, Tensor]
    """The subject's inputs that are wrong."""
    vision: Mapping[str, Tensor]
    """The subject's tensors of vision."""
    outputs: tuple[str, ...] = ()
    """Wrong outputs to look at besides the tensors: ``tokens``, ``text`` and ``result.mmd``."""
    alone: Mapping[str, bool] = field(default_factory=dict)
    """Stages that received the reference's tensors, and whether they are then right."""

    @classmethod
    def of(cls, report: CaseReport, question: Question, outputs: Sequence[str] = ()) -> Trail:
        """Return the trail of a judged case with the explanation of its first divergence."""
        answer, first = report.exchange.answer, report.explanation
        seams = {name: replace(seam, values=None, not_finite=None) for name, seam in answer.seams.items()}
        wrong = {one.what for one in report.comparisons if one.verdict is Verdict.WRONG}
        inputs = {name: one for name, one in (answer.input_tensors or {}).items() if name in wrong}
        named = first.mistakes if first else ()
        found, partly = (named, ()) if first and first.is_whole else ((), named)
        whole = replace(question, seams=seams)
        return cls(whole, found, partly, inputs, answer.vision_tensors or {}, tuple(outputs), report.exchange.alone)

    def pack(self) -> dict[str, Any]:
        """Return the trail as values that a worker takes."""
        return {**vars(self), "question": self.question.pack()}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> Trail:
        """Return the trail of packed values."""
        return cls(**{**packed, "question": Question.unpack(packed["question"])})


def question_of(report: CaseReport, budget_s: float) -> Question | None:
    """Return the question about a case's first divergence.

    If everything passes and only the text is offered, the question is about the text. Without a divergence, or without
    the values that it takes, there is no question.
    """
    divergence, answer, expected = report.divergence, report.exchange.answer, report.exchange.expected
    if divergence is None and (answer.level >= Level.STAGES or not report.passes):
        return None
    what = (divergence.begins or divergence.first.what) if divergence else "text"
    if what in COMPARED and answer.inputs is None:
        return None
    return Question(
        page=PageRead.of(report),
        what=what,
        level=int(answer.level),
        budget_s=budget_s,
        near=(own := tolerances(report.limits.dtype)).seam,
        ordinary=min(own.seam, own.ordinary),
        inputs=None if answer.inputs is None else pack_inputs(answer.inputs)[0],
        seams=_seams(what, answer),
        steps=tuple(zip(answer.forced or (), expected.steps, strict=False)),
        best=answer.prefill_best,
        mmd=answer.mmd,
    )


def _seams(what: str, answer: SubjectResult) -> dict[str, Seam]:
    """Return the seams of the stage that broke, or the pixels."""
    if what in PIXELS:
        tensors = answer.input_tensors or {}
        return {what: Seam.of(tensors[what])} if what in tensors else {}
    whole = TensorName.parse(what).whole
    return {
        name: replace(seam, values=None) for name, seam in answer.seams.items() if TensorName.parse(name).whole == whole
    }
