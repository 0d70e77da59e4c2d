"""One case: both sides are asked once, and their answers are judged once for each set of limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_dsocr.cases.explanation import Explanation
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, worst
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference.protocol import Reference
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.protocol import TextSubject


@dataclass(frozen=True, eq=False)
class Exchange:
    """The answers of both sides to one case, and how long they took."""

    case: Case
    answer: Answer
    theirs: Observation
    reference_s: float
    subject_s: float
    findings: tuple[str, ...] = ()
    """What was learnt by giving the subject the reference's tensors, a sentence each."""
    explanation: Explanation | None = None
    """What explains the first divergence; None where nothing was asked."""


@dataclass(frozen=True)
class CaseReport:
    """Every comparison of one case under some limits, in the order of the stages."""

    exchange: Exchange
    comparisons: tuple[Comparison, ...]
    limits: Tolerances

    @property
    def case(self) -> Case:
        """The page, the prompt and the preset."""
        return self.exchange.case

    @property
    def fault(self) -> SubjectFaultError | None:
        """The subject's error that part of the case was lost to, if any."""
        return self.exchange.answer.fault

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict; NOT-COMPARED where nothing was compared, or where an error left something open."""
        gravest = worst(self.comparisons)
        return gravest if self.fault is None or gravest is Verdict.WRONG else Verdict.NOT_COMPARED

    @property
    def passes(self) -> bool:
        """Whether something was compared, nothing is WRONG, and nothing that a side has was left uncompared."""
        return self.verdict is not Verdict.NOT_COMPARED and all(one.passes for one in self.comparisons)

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """How often each verdict was given."""
        return Counter(comparison.verdict for comparison in self.comparisons)

    @property
    def divergence(self) -> Divergence | None:
        """Where it first breaks, and what to check there; None where nothing is WRONG."""
        return first_divergence(self.comparisons)

    @property
    def worst_error(self) -> float:
        """The largest relative error of a tensor."""
        return max((comparison.error for comparison in self.comparisons if comparison.error is not None), default=0.0)

    def of(self, *stages: str) -> tuple[Comparison, ...]:
        """Give the comparisons of stages: ``sam`` is ``sam.crops``, ``sam.page`` and ``sam.page/3``."""
        return tuple(one for one in self.comparisons if one.stage in stages)


def ask(
    subject: TextSubject,
    reference: Reference,
    case: Case,
    on_token: Callable[[int], None] = lambda step: None,
    *,
    always_read: bool = False,
    tokenizer: TextTokenizer | None = None,
) -> Exchange:
    """Ask both sides about ``case``; see :func:`~pytest_dsocr.subjects.follow.follow`.

    Where the subject raised, its answer holds what it said until then, and the error.

    Raises:
        ReferenceFaultError: where the reference cannot answer, which is no verdict.
        NotRecordedError: where the reference is a recording without this case.
    """
    started = time.perf_counter()
    theirs = reference.observe(case)
    answered = time.perf_counter()
    answer = follow(subject, case, theirs, on_token, always_read=always_read, tokenizer=tokenizer)
    return Exchange(case, answer, theirs, answered - started, time.perf_counter() - answered)


def judge(exchange: Exchange, limits: Tolerances) -> CaseReport:
    """Compare everything that the reference has and the subject offers."""
    return CaseReport(exchange, tuple(compare_observations(exchange.answer, exchange.theirs, limits)), limits)
