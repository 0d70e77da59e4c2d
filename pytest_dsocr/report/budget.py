"""Losses of a run's pages to fewer bits, and whether the budget allows them; see :mod:`pytest_dsocr.compare.budget`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.tolerances import LOSSES
from pytest_dsocr.report.case_result import CaseResult, Number, number, of_number

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spent:
    """Loss of a run's pages of one kind, and its limit."""

    name: str
    """Member of :data:`~pytest_dsocr.compare.tolerances.LOSSES`."""
    mean: float
    interval: tuple[float, float] | None
    """Confidence interval of the mean over such pages; None for a single page, or if no page lost anything."""
    worst: float
    where: str
    """The case that lost the most."""
    allowed: float | None
    """None if the budget does not limit it."""

    @property
    def is_over(self) -> bool:
        """Whether the mean loss exceeds the limit; a NaN does."""
        return self.allowed is not None and not self.mean <= self.allowed

    def __str__(self) -> str:
        """Return a phrase such as ``kl 0.0031 (0.0018 to 0.0044), allowed 0.02; the most 0.009, on invoice_000``."""
        between = "" if self.interval is None else f" ({' to '.join(map(two_digits, self.interval))})"
        allowed = "no limit" if self.allowed is None else f"allowed {two_digits(self.allowed)}"
        most = f"; the most {two_digits(self.worst)}, on {self.where}" if self.worst > 0 else ""
        return f"{self.name} {two_digits(self.mean)}{between}, {allowed}{most}"


@dataclass(frozen=True)
class Spending:
    """Losses of a run's pages, of all kinds."""

    pages: int
    spent: Sequence[Spent]
    stages: Mapping[str, float]
    """Mean amount that each stage adds to ``kl``, in nats; empty if the subject does not show its stages."""
    unmeasured: Sequence[str]
    """Quantities that the budget limits and the subject does not offer."""
    origin: str
    """Name of the budget, and who allowed it."""

    @classmethod
    def of(cls, cases: Sequence[CaseResult]) -> Spending | None:
        """Sum up the cases of a run that have a budget; return None if no case has one."""
        losses = {case.id: case.loss for case in cases if case.loss}
        if not losses:
            return None
        first = next(iter(losses.values()))
        allowed = first.allowed
        kinds = {name: {case: number(one.lost.get(name)) for case, one in losses.items()} for name in LOSSES}
        measured = [name for name in LOSSES if all(name in one.lost for one in losses.values())]
        found = [_spent(name, kinds[name], allowed.get(name)) for name in measured]
        named = dict.fromkeys(stage for one in losses.values() for stage in one.stages)
        stages = {stage: fmean(number(one.stages.get(stage)) for one in losses.values()) for stage in named}
        unmeasured = [name for name in allowed if name not in measured]
        return cls(len(losses), found, stages, unmeasured, first.origin)

    @property
    def why_not(self) -> str:
        """Reason that the run does not pass; empty if something was measured and all is within the budget."""
        if over := [str(one) for one in self.spent if one.is_over]:
            return f"over budget: {'; '.join(over)}"
        limited = any(one.allowed is not None for one in self.spent)
        return "" if limited else f"nothing of the budget was measured: {', '.join(self.unmeasured)} needs L2"

    @property
    def in_short(self) -> str:
        """Losses of a run that passes: ``within the int8 budget, declared by the subject: boxes 0 of 0.06``."""
        limited = [(one, one.allowed) for one in self.spent if one.allowed is not None]
        spent = ", ".join(f"{one.name} {two_digits(one.mean)} of {two_digits(allowed)}" for one, allowed in limited)
        unmeasured = f", {' and '.join(self.unmeasured)} not measured" if self.unmeasured else ""
        return f"within {self.origin}: {spent}{unmeasured}"

    @property
    def lines(self) -> Iterator[tuple[str, bool]]:
        """Yield a line for each loss, and whether it is too large; then the losses by stage."""
        for one in self.spent:
            yield str(one), one.is_over
        if self.unmeasured:
            yield f"{', '.join(self.unmeasured)}: not offered by the subject", False
        if self.stages:
            yield "kl by stage: " + ", ".join(f"{name} {two_digits(cost)}" for name, cost in self.stages.items()), False

    @property
    def title(self) -> str:
        """Title of :attr:`lines`."""
        interval = f"its {CONFIDENCE:.0%} confidence interval over such pages"
        return f"losses on {count(self.pages, 'case')} (mean, with {interval})"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        spent = [(one, {"mean": of_number(one.mean), "worst": of_number(one.worst)}) for one in self.spent]
        return {
            "cases": self.pages,
            "origin": self.origin,
            "lost": [{**asdict(one), **numbers, "over": one.is_over} for one, numbers in spent],
            "stages": {name: of_number(cost) for name, cost in self.stages.items()},
            "unmeasured": list(self.unmeasured),
        }


def two_digits(value: Number) -> str:
    """Return a loss with two digits, or the word for a NaN or infinity."""
    return value if isinstance(value, str) else f"{number(value):.2g}"


def _spent(name: str, values: Mapping[str, float], allowed: float | None) -> Spent:
    where = max(values, key=values.__getitem__)
    return Spent(name, fmean(values.values()), _interval(name, [*values.values()]), values[where], where, allowed)


def _interval(name: str, values: Sequence[float]) -> tuple[float, float] | None:
    from scipy import stats  # takes longer to import than all pages take to sum up

    if name == "pages":
        share = stats.binomtest(round(sum(values)), len(values)).proportion_ci(CONFIDENCE, method="exact")
        return float(share.low), float(share.high)
    if len(values) < 2 or not any(values) or not all(map(math.isfinite, values)):
        return None
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, loc=fmean(values), scale=stats.sem(values) or 1e-300)
    return max(0.0, float(low)), float(high)
