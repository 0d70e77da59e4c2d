"""Losses of a run's pages to fewer bits, and whether the budget allows them; see :mod:`pytest_dsocr.compare.budget`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.tolerances import LOSSES
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.comparison_result import Number, number, of_number

CONFIDENCE = 0.95


class Spent(Struct, frozen=True):
    """Loss of a run's pages of one kind, and its limit."""

    name: str
    """Member of :data:`~pytest_dsocr.compare.tolerances.LOSSES`."""
    mean: Number
    interval: tuple[float, float] | None
    """Confidence interval of the mean over such pages; None for a single page, or if no page lost anything."""
    worst: Number
    where: str
    """The case that lost the most."""
    allowed: int | float | None
    """None if the budget does not limit it."""
    over: bool
    """Whether the mean loss exceeds the limit."""

    def __str__(self) -> str:
        """Return a phrase such as ``kl 0.0031 (0.0018 to 0.0044), allowed 0.02; the most 0.009, on invoice_000``."""
        between = "" if self.interval is None else f" ({' to '.join(map(two_digits, self.interval))})"
        allowed = "no limit" if self.allowed is None else f"allowed {two_digits(self.allowed)}"
        worst = number(self.worst)
        most = f"; the most {two_digits(worst)}, on {self.where}" if worst > 0 else ""
        return f"{self.name} {two_digits(number(self.mean))}{between}, {allowed}{most}"


class Spending(Struct, frozen=True):
    """Losses of a run's pages, of all kinds."""

    cases: int
    origin: str
    """Name of the budget, and who allowed it."""
    lost: list[Spent]
    stages: dict[str, Number]
    """Mean amount that each stage adds to ``kl``, in nats; empty if the subject does not show its stages."""
    unmeasured: list[str]
    """Quantities that the budget limits and the subject does not offer."""

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
        means = ((stage, fmean(number(one.stages.get(stage)) for one in losses.values())) for stage in named)
        stages = {stage: of_number(mean) for stage, mean in means}
        unmeasured = [name for name in allowed if name not in measured]
        return cls(len(losses), first.origin, found, stages, unmeasured)

    @property
    def why_not(self) -> str:
        """Reason that the run does not pass; empty if something was measured and all is within the budget."""
        if over := [str(one) for one in self.lost if one.over]:
            return f"over budget: {'; '.join(over)}"
        limited = any(one.allowed is not None for one in self.lost)
        return "" if limited else f"nothing of the budget was measured: {', '.join(self.unmeasured)} needs L2"

    @property
    def in_short(self) -> str:
        """Losses of a run that passes: ``within the int8 budget, declared by the subject: boxes 0 of 0.06``."""
        limited = [(one.name, number(one.mean), one.allowed) for one in self.lost if one.allowed is not None]
        spent = ", ".join(f"{name} {two_digits(mean)} of {two_digits(allowed)}" for name, mean, allowed in limited)
        unmeasured = f", {' and '.join(self.unmeasured)} not measured" if self.unmeasured else ""
        return f"within {self.origin}: {spent}{unmeasured}"

    @property
    def lines(self) -> Iterator[tuple[str, bool]]:
        """Yield a line for each loss, and whether it is too large; then the losses by stage."""
        for one in self.lost:
            yield str(one), one.over
        if self.unmeasured:
            yield f"{', '.join(self.unmeasured)}: not offered by the subject", False
        if self.stages:
            costs = (f"{name} {two_digits(number(cost))}" for name, cost in self.stages.items())
            yield f"kl by stage: {', '.join(costs)}", False

    @property
    def title(self) -> str:
        """Title of :attr:`lines`."""
        interval = f"its {CONFIDENCE:.0%} confidence interval over such pages"
        return f"losses on {count(self.cases, 'case')} (mean, with {interval})"


def two_digits(value: Number) -> str:
    """Return a loss with two digits, or the word for a NaN or infinity."""
    return value if isinstance(value, str) else f"{number(value):.2g}"


def _spent(name: str, values: Mapping[str, float], allowed: float | None) -> Spent:
    where, mean = max(values, key=values.__getitem__), fmean(values.values())
    over = allowed is not None and not mean <= allowed  # a NaN is over any limit
    interval = _interval(name, [*values.values()])
    return Spent(name, of_number(mean), interval, of_number(values[where]), where, allowed, over)


def _interval(name: str, values: Sequence[float]) -> tuple[float, float] | None:
    from scipy import stats  # takes longer to import than all pages take to sum up

    if name == "pages":
        share = stats.binomtest(round(sum(values)), len(values)).proportion_ci(CONFIDENCE, method="exact")
        return float(share.low), float(share.high)
    if len(values) < 2 or not any(values) or not all(map(math.isfinite, values)):
        return None
    low, high = stats.t.interval(CONFIDENCE, len(values) - 1, loc=fmean(values), scale=stats.sem(values) or 1e-300)
    return max(0.0, float(low)), float(high)
