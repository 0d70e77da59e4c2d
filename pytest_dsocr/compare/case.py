"""One case as it is judged: what both sides answered, every comparison of these, what explains the first break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytest_dsocr.compare.budget import loss_of, on_budget
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, worst
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.observation.observation import Observation


@dataclass(frozen=True)
class Explanation:
    """What explains a case's first divergence, or how far that was looked for."""

    text: str
    """A sentence, behind "explained"."""
    what: str = ""
    """The comparison that it is about; empty where nothing was tried."""
    mistakes: tuple[str, ...] = ()
    """The ids of the mistakes that it names."""
    is_proven: bool = False
    """Whether the session reproduces the subject's tensor with one of them; else it only comes nearer, or none does."""
    pages: int = 0
    """Of a text, on how many pages they were tried, all so far; 0 of anything else."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """The answers of both sides to one case, and how long they took."""

    case: Case
    answer: Answer
    expected: Observation
    """What the reference did."""
    reference_s: float
    subject_s: float
    findings: tuple[str, ...] = ()
    """What was learnt by giving the subject the reference's tensors, a sentence each."""
    explanation: Explanation | None = None
    """What explains the first divergence; None where nothing was asked."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """What each stage adds to the divergence of the next token's distribution, in nats, where a budget is set."""


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

    @cached_property
    def divergence(self) -> Divergence | None:
        """Where it first breaks, and what to check there; None where nothing is WRONG."""
        return first_divergence(self.comparisons, self.limits.ordinary)

    @cached_property
    def loss(self) -> Mapping[str, float]:
        """What the page lost, where a budget is set and the subject answered to the end; see ``compare.budget``."""
        text = next((one for one in self.comparisons if one.what == "text"), None)
        if self.limits.budget is None or self.fault is not None or text is None:
            return {}
        return loss_of(self.exchange.answer, self.exchange.expected, text)

    @property
    def worst_error(self) -> float:
        """The largest relative error of a tensor."""
        return max((comparison.error for comparison in self.comparisons if comparison.error is not None), default=0.0)

    def of(self, *stages: str) -> tuple[Comparison, ...]:
        """Return the comparisons of stages: ``sam`` is ``sam.crops``, ``sam.page`` and ``sam.page/3``."""
        return tuple(one for one in self.comparisons if one.stage in stages)


def judge(exchange: Exchange, limits: Tolerances) -> CaseReport:
    """Compare everything that the reference has and the subject offers."""
    found = compare_observations(exchange.answer, exchange.expected, limits)
    return CaseReport(exchange, tuple(found if limits.budget is None else map(on_budget, found)), limits)
