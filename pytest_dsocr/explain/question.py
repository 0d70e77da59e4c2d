"""The question about a judged case that goes to the explaining process, and its answer; msgspec packs both.

Candidates are tried one after the other within a budget; the nearest to the subject's tensor is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import COMPARED, PIXELS
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.records import subject_result as of_subject
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.packing import pack_inputs
from pytest_dsocr.records.reference_result import ReferenceResult, Seam
from pytest_dsocr.records.summing import sample_positions
from pytest_dsocr.reference.protocol import pack_case

PackedSeam = Mapping[str, Any]
OF_TEXT = ("read", "text", "spans", "boxes")
"""The comparisons that a text alone decides."""
NOT = "not "
"""How ``beyond`` begins where what follows is not explained."""


@dataclass(frozen=True)
class SentSeam:
    """A seam as it is sent: enough to compute how far another tensor is from it."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str
    norm: float
    sketch: tuple[float, ...]
    sample: tuple[float, ...]

    @classmethod
    def of(cls, seam: Seam) -> SentSeam:
        """Take what is needed of a seam."""
        sketch, sample = tuple(seam.sketch.tolist()), tuple(seam.sample.tolist())
        return cls(tuple(seam.shape), seam.dtype, seam.sha256, seam.norm, sketch, sample)

    def distance(self, seam: Seam) -> float:
        """Return the norm of the difference from ``seam`` over its norm: 0 where every bit is equal."""
        if (self.shape, self.dtype, self.sha256) == (tuple(seam.shape), seam.dtype, seam.sha256):
            return 0.0
        if self.shape != tuple(seam.shape):
            return math.inf
        apart = float((torch.tensor(self.sketch).double() - seam.sketch.double()).norm()) / (seam.norm or 1.0)
        return apart if math.isfinite(apart) else math.inf

    def distance_of_first(self, first: Tensor) -> float:
        """Return how far the values sampled from the first views are from those of ``first``, relative to these."""
        places = torch.from_numpy(sample_positions(math.prod(self.shape)))
        inside = places < first.numel()
        own = first.detach().flatten()[places[inside].to(first.device)].double().cpu()
        apart = (torch.tensor(self.sample).double()[inside] - own).norm() / own.norm().clamp_min(1e-30)
        return float(apart) if math.isfinite(float(apart)) else math.inf


@dataclass(frozen=True)
class ActualStep:
    """A step along the reference's tokens."""

    token: int
    """The subject's choice."""
    reference: int
    """The reference's choice."""
    ids: tuple[int, ...]
    """The tokens whose logits follow."""
    logits: tuple[float, ...]
    """The subject's."""


@dataclass(frozen=True)
class PageRead:
    """What was read of a page."""

    case: PackedSeam
    """See :func:`~pytest_dsocr.reference.protocol.pack_case`."""
    text: str
    """The subject's."""
    reference_tokens: tuple[int, ...]
    tokens: int = 0
    """How many the reference has, with the prompt's: what a page costs."""
    is_right: bool = False
    """Whether the page passes."""
    is_cut: bool = False
    """Whether it has crops."""

    @classmethod
    def of(cls, report: CaseReport) -> PageRead:
        """Take it of a judged case."""
        packed, exchange = pack_case(report.case), report.exchange
        case, said = {**packed, "preset": dict(packed["preset"])}, exchange.expected.token_ids
        inputs, is_right = exchange.expected.inputs, report.divergence is None
        tokens = len(said) + sum(count for _, count in inputs.input_ids)
        return cls(case, exchange.answer.text, said, tokens, is_right, is_cut(inputs.shapes))


@dataclass(frozen=True)
class Question:
    """A case's first divergence, and the subject's tensors."""

    page: PageRead
    what: str
    """The comparison that breaks first, or where its error begins."""
    level: int
    budget_s: float
    near: float
    """Up to this relative error a tensor counts as reproduced; rounding."""
    ordinary: float = 0.0
    """Up to this one correct implementations differ."""
    inputs: PackedSeam | None = None
    """The digests of the subject's inputs."""
    seams: Mapping[str, SentSeam] = field(default_factory=dict)
    """The subject's, with its pixels under the names of the inputs."""
    steps: tuple[ActualStep, ...] = ()
    best: Mapping[int, float] = field(default_factory=dict)
    """The subject's logits of the best first tokens."""
    mmd: str | None = None
    others: tuple[PageRead, ...] = ()
    """Of a text, the pages that were read before."""
    only: tuple[str, ...] = ()
    """The ids of the mistakes that explain these; they are tried in front."""
    done: tuple[str, ...] | None = ()
    """The ids of those that were tried on these; None where no further one is to be tried."""

    def left(self, candidates: Iterable[Mistake]) -> list[Mistake]:
        """Return those of the candidates that are to be tried, each once."""
        every, done = list(candidates), {*(self.done or ()), *self.only}
        known = [one for one in every if one.id in self.only]
        return known if self.done is None else [*known, *(one for one in every if one.id not in done)]


@dataclass(frozen=True)
class SearchResult:
    """What a search among mistakes found."""

    tried: int
    """How many were computed and compared."""
    untried: int
    """How many the time did not allow, now and before."""
    without: float
    """The relative error of the engine without any mistake."""
    found: tuple[str, ...] = ()
    """The ids of what explains it; several where they give the same."""
    words: tuple[str, ...] = ()
    error: float = math.inf
    """The relative error that is left with it."""
    explained: bool = False
    """Whether it is reproduced; else what was found only comes nearer."""
    raised: tuple[str, ...] = ()
    """The words of those that could not be computed."""
    done: tuple[str, ...] = ()
    """The ids of all that were tried, those that could not be computed as well."""
    places: int | None = None
    """Of a text or of choices, in how many places the engine would have gone on otherwise; None of tensors."""
    beyond: str = ""
    """Where the mistake gives the subject's values as well, or ``not`` and where it does not; ends a sentence."""


def question_of(report: CaseReport, budget_s: float) -> Question | None:
    """Ask about a case's first divergence, or about the text where all is right and nothing in front of it is shown.

    None where neither is so, or what is needed is missing.
    """
    divergence, answer, expected = report.divergence, report.exchange.answer, report.exchange.expected
    if divergence is None and (answer.level >= Level.STAGES or not report.passes):
        return None
    what = (divergence.begins or divergence.first.what) if divergence else "text"
    if what in COMPARED and answer.inputs is None:
        return None
    best = answer.prefill_best
    return Question(
        page=PageRead.of(report),
        what=what,
        level=int(answer.level),
        budget_s=budget_s,
        near=(own := tolerances(report.limits.dtype)).seam,
        ordinary=min(own.seam, own.ordinary),
        inputs=None if answer.inputs is None else pack_inputs(answer.inputs)[0],
        seams={name: SentSeam.of(seam) for name, seam in _seams(what, answer).items()},
        steps=_steps(answer, expected),
        best={} if best is None else dict(zip(best.ids, best.logits, strict=True)),
        mmd=answer.mmd,
    )


def _seams(what: str, answer: of_subject.SubjectResult) -> dict[str, Seam]:
    """Return the seams of the stage that broke, or the pixels."""
    if what in PIXELS:
        tensors = answer.input_tensors or {}
        return {what: Seam.of(tensors[what])} if what in tensors else {}
    whole = TensorName.parse(what).whole
    return {name: seam for name, seam in answer.seams.items() if TensorName.parse(name).whole == whole}


def _steps(answer: of_subject.SubjectResult, expected: ReferenceResult) -> tuple[ActualStep, ...]:
    found = []
    for actual, step in zip(answer.forced or (), expected.steps, strict=False):
        best = actual.at_hand(step)
        found.append(ActualStep(actual.token, step.token, tuple(best.ids), tuple(best.logits)))
    return tuple(found)


TIMES_NEARER = 100
"""So many times nearer than without it does a mistake come that explains."""
SOMEWHAT_NEARER = 10
"""So many times where another mistake is left."""
AS_NEAR = 3
"""What comes as near as this many times the nearest may be the mistake as well."""
EXACT = 1e-7
"""Below it float32 cannot tell one from the other."""

Measure = Callable[[Mistake], float]
"""Gives how far the engine with a mistake is from the subject, 0 where every bit is equal."""


def search(
    candidates: Iterable[Mistake],
    measure: Measure,
    without: float,
    question: Question,
    deadline: Deadline,
    *,
    near: float | None = None,
) -> tuple[SearchResult, list[Mistake]]:
    """Try the candidates in their order; those like one that is equal to the bit are next.

    Args:
        candidates: what may be the mistake.
        measure: how far each is from the subject; a candidate that it raises for does not count as tried.
        without: how far the engine is without any mistake.
        question: which of the candidates to try.
        deadline: no candidate is started after it.
        near: up to this distance the subject's tensor counts as reproduced; the question's if left out.

    Returns:
        The answer, without what follows of it, and the candidates that it names.
    """
    every, found, raised, done = [*candidates], list[tuple[float, Mistake]](), list[str](), list[str]()
    left = question.left(every)
    while left and without > 0 and not deadline.is_over:
        one = left.pop(0)
        done.append(one.id)
        try:
            distance = measure(one)
        except Exception:  # a mistake may fit this checkpoint's sizes as little as a port's would
            raised.append(one.words)
            continue
        found.append((distance if math.isfinite(distance) else math.inf, one))
        if distance == 0.0:
            left.sort(key=partial(_rank, question, one))
    tried = {*(question.done or ()), *done}
    untried = sum(one.id not in tried for one in every)
    answer = SearchResult(len(found), untried, without, raised=tuple(raised), done=tuple(done))
    return _verdict(answer, found, question.near if near is None else near)


def _rank(question: Question, one: Mistake, other: Mistake) -> tuple[bool, bool]:
    """Order what is left: what explains the pages before, then what is like one that explains."""
    return other.id not in question.only, _kind(one) != _kind(other)


def _kind(one: Mistake) -> str:
    return one.id.partition("-")[0]


def _verdict(
    answer: SearchResult, found: Sequence[tuple[float, Mistake]], near: float
) -> tuple[SearchResult, list[Mistake]]:
    least = min((distance for distance, _ in found), default=math.inf)
    if least > answer.without / SOMEWHAT_NEARER or least == math.inf:
        return answer, []
    explained = least <= near and least <= answer.without / TIMES_NEARER
    alike = [one for distance, one in found if distance <= max(AS_NEAR * least, EXACT if least else 0.0)]
    ids, words = tuple(one.id for one in alike), tuple(one.words for one in alike)
    return replace(answer, found=ids, words=words, error=least, explained=explained), alike
