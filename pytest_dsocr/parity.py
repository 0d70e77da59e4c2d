"""One case held against the reference, from its page to its verdicts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_dsocr.case import Case
from pytest_dsocr.compare.divergence import Divergence, first_divergence
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, worst
from pytest_dsocr.observation import Output
from pytest_dsocr.subjects.session import SessionSubject
from pytest_dsocr.vendor.reference import Reference


@dataclass(frozen=True)
class CaseReport:
    """Every comparison of one case, in the stages' order, and what it took."""

    case: Case
    reference: Output
    subject: Output
    comparisons: tuple[Comparison, ...]
    reference_s: float
    subject_s: float

    @property
    def verdict(self) -> Verdict:
        """The gravest; NOT-COMPARED only where nothing was compared."""
        return worst(self.comparisons)

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


def compare_case(
    subject: SessionSubject, reference: Reference, case: Case, on_token: Callable[[int], None] = lambda step: None
) -> CaseReport:
    """Run both sides on ``case`` and compare all that the reference has.

    Raises:
        ReferenceFaultError: where the reference cannot answer, which is no verdict.
        NotRecordedError: where the reference is a recording without this case.
    """
    started = time.perf_counter()
    theirs = reference.observe(case)
    answered = time.perf_counter()
    mine, forced = subject.follow(case, theirs, on_token)
    limits = tolerances(subject.dtype, reference.provenance.dtype)
    comparisons = tuple(compare_observations(mine, forced, theirs, limits))
    subject_s = time.perf_counter() - answered
    return CaseReport(case, theirs.output, mine.output, comparisons, answered - started, subject_s)
