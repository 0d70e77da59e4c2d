"""The question about a judged case that goes to the explaining process, the search, and its result.

The search tries candidates one after the other within a budget. The nearest to the subject's tensor is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.divergence import is_cut
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import COMPARED, PIXELS
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.packing import pack_inputs
from pytest_dsocr.records.reference_result import Best, ReferenceResult, Seam
from pytest_dsocr.records.subject_result import SubjectResult
from pytest_dsocr.records.summing import sample_positions
from pytest_dsocr.reference.protocol import pack_case

BY_TEXT = ("read", "text", "spans", "boxes")
"""Comparisons that a text alone decides."""
NOT = "not "
"""Start of :attr:`SearchResult.beyond` if the mistake does not explain the next tensors."""


def distance(actual: Seam, made: Seam) -> float:
    """Return the norm of the difference of two tensors over that of ``made``; 0 only if every bit is equal."""
    if (actual.shape, actual.dtype, actual.sha256) == (made.shape, made.dtype, made.sha256):
        return 0.0
    if actual.shape != made.shape:
        return math.inf
    apart = float((actual.sketch.double() - made.sketch.double()).norm()) / (made.norm or 1.0)
    return apart if math.isfinite(apart) else math.inf


def distance_of_first(actual: Seam, first: Tensor) -> float:
    """Return the distance of the sampled values that lie in the ``first`` views, relative to these."""
    places = torch.from_numpy(sample_positions(math.prod(actual.shape)))
    inside = places < first.numel()
    own = first.detach().flatten()[places[inside].to(first.device)].double().cpu()
    apart = float((actual.sample.double()[inside] - own).norm() / own.norm().clamp_min(1e-30))
    return apart if math.isfinite(apart) else math.inf


@dataclass(frozen=True)
class ActualStep:
    """A step of the subject after the reference's tokens so far."""

    token: int
    """Token that the subject chose."""
    reference: int
    """Token that the reference chose."""
    logits: Best
    """The subject's logits that are known."""


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

    @classmethod
    def of(cls, report: CaseReport) -> PageRead:
        """Return the page of a judged case."""
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
    steps: tuple[ActualStep, ...] = ()
    best: Best | None = None
    """The subject's logits of the best first tokens."""
    mmd: str | None = None
    others: tuple[PageRead, ...] = ()
    """Pages that were read before; only for a text."""
    only: tuple[str, ...] = ()
    """Ids of the mistakes that explain ``others``; they are tried first."""
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

    def left(self, candidates: Iterable[Mistake]) -> list[Mistake]:
        """Return the candidates to try, each once."""
        every, done = list(candidates), {*(self.done or ()), *self.only}
        known = [one for one in every if one.id in self.only]
        return known if self.done is None else [*known, *(one for one in every if one.id not in done)]


@dataclass(frozen=True)
class SearchResult:
    """Result of a search among mistakes."""

    tried: int
    """Number of mistakes that were computed and compared."""
    untried: int
    """Number of mistakes that the time did not allow, now and before."""
    without: float
    """Relative error of the engine without any mistake."""
    found: tuple[str, ...] = ()
    """Ids of the mistakes that explain the divergence; several if they have the same effect."""
    words: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Groups of the mistakes in ``found``."""
    error: float = math.inf
    """Relative error with the mistake."""
    explained: bool = False
    """Whether the divergence is reproduced; otherwise the engine only comes nearer to the subject."""
    raised: tuple[str, ...] = ()
    """Words of the mistakes that could not be computed."""
    done: tuple[str, ...] = ()
    """Ids of all mistakes that were tried, also of those that could not be computed."""
    places: int | None = None
    """Number of places where a text or choices leave the engine's; None for tensors."""
    beyond: str = ""
    """The next tensors that the mistake also explains, or :data:`NOT` and the one that it does not."""

    def naming(self, mistakes: Sequence[Mistake]) -> SearchResult:
        """Return the result with these mistakes as the explanation."""
        ids, words, groups = (tuple(getattr(one, name) for one in mistakes) for name in ("id", "words", "group"))
        return replace(self, found=ids, words=words, groups=groups)


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
        steps=_steps(answer, expected),
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


def _steps(answer: SubjectResult, expected: ReferenceResult) -> tuple[ActualStep, ...]:
    pairs = zip(answer.forced or (), expected.steps, strict=False)
    return tuple(ActualStep(actual.token, step.token, actual.at_hand(step)) for actual, step in pairs)


TIMES_NEARER = 100
"""Factor by which a mistake that explains must reduce the error."""
SOMEWHAT_NEARER = 10
"""Factor by which a mistake must reduce the error if another mistake is left."""
AS_NEAR = 3
"""Factor between errors that are not told apart: mistakes within it of the nearest are named as well."""
EXACT = 1e-7
"""Error below which float32 cannot tell two mistakes apart."""

Measure = Callable[[Mistake], float]
"""Return the distance of the engine with a mistake from the subject; 0 only if every bit is equal."""


def search(
    candidates: Iterable[Mistake],
    measure: Measure,
    without: float,
    question: Question,
    deadline: Deadline,
    *,
    near: float | None = None,
) -> tuple[SearchResult, list[Mistake]]:
    """Try the candidates in order. After one that is equal to the bit, try its kind next.

    Args:
        candidates: mistakes that may explain the divergence.
        measure: distance of each; a candidate for which it raises does not count as tried.
        without: distance of the engine without a mistake.
        question: decides which of the candidates are tried.
        deadline: end of the search; no candidate is started after it.
        near: largest distance that counts as reproduced; the question's own by default.

    Returns:
        The result, and the mistakes that it names.
    """
    every, found, raised, done = [*candidates], list[tuple[float, Mistake]](), list[str](), list[str]()
    left = question.left(every)
    while left and without > 0 and not deadline.is_over:
        one = left.pop(0)
        done.append(one.id)
        try:
            apart = measure(one)
        except Exception:  # a mistake may not fit the sizes of this checkpoint
            raised.append(one.words)
            continue
        found.append((apart if math.isfinite(apart) else math.inf, one))
        if apart == 0.0:
            left.sort(key=partial(_rank, question, one))
    tried = {*(question.done or ()), *done}
    untried = sum(one.id not in tried for one in every)
    answer = SearchResult(len(found), untried, without, raised=tuple(raised), done=tuple(done))
    return _named(answer, found, question.near if near is None else near)


def _rank(question: Question, one: Mistake, other: Mistake) -> tuple[bool, bool]:
    """Return the key that puts mistakes first that explain earlier pages, then mistakes of the kind of ``one``."""
    return other.id not in question.only, (one.group, one.kind) != (other.group, other.kind)


def _named(
    answer: SearchResult, found: Sequence[tuple[float, Mistake]], near: float
) -> tuple[SearchResult, list[Mistake]]:
    least = min((apart for apart, _ in found), default=math.inf)
    if least > answer.without / SOMEWHAT_NEARER or least == math.inf:
        return answer, []
    explained = least <= near and least <= answer.without / TIMES_NEARER
    alike = [one for apart, one in found if apart <= max(AS_NEAR * least, EXACT if least else 0.0)]
    return replace(answer.naming(alike), error=least, explained=explained), alike
