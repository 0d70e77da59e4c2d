"""The quality of many pages in a few figures: each a ratio of sums over the pages, with its interval and its aim."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ci.training.quality import PageQuality

RESAMPLES = 2000
Z95 = 1.96
"""Standard deviations of a normal distribution that 95 % of it lie within."""


@dataclass(frozen=True)
class Measure:
    """What is measured, and what is aimed at."""

    key: str
    name: str
    part: Callable[[PageQuality], float]
    """Of one page."""
    whole: Callable[[PageQuality], float]
    """What ``part`` is of; 1 for a share of pages."""
    aim: float | None = None
    better: Literal["higher", "lower"] = "higher"
    unit: Literal["%", ""] = "%"


def _page(_: PageQuality) -> float:
    return 1.0


MEASURES = (
    Measure("exact_boxes", "pages with the exact number of boxes", lambda q: q.surplus_boxes == 0, _page, aim=0.90),
    Measure("iou", "IoU of matched boxes", lambda q: q.iou_sum, lambda q: q.matched_boxes, aim=0.85, unit=""),
    Measure("found", "boxes found with IoU above 0.5", lambda q: q.good_boxes, lambda q: q.true_boxes),
    Measure("labels", "boxes found under their label", lambda q: q.labelled_boxes, lambda q: q.true_boxes, aim=0.98),
    Measure(
        "title_errors",
        "character errors of titles",
        lambda q: q.title_errors,
        lambda q: q.title_characters,
        aim=0.05,
        better="lower",
    ),
    Measure(
        "text_errors",
        "character errors of text",
        lambda q: q.text_errors,
        lambda q: q.text_characters,
        aim=0.15,
        better="lower",
    ),
    Measure("in_order", "pages in reading order", lambda q: q.moved_blocks == 0, _page),
    Measure("ended", "pages ended by EOS", lambda q: q.ended, _page, aim=1.0),
    Measure("degenerate", "pages that repeat themselves", lambda q: q.degenerate, _page, aim=0.0, better="lower"),
)


@dataclass(frozen=True)
class Figure:
    """A measure of many pages."""

    measure: Measure
    part: float
    whole: float
    low: float
    """Where the 95 % interval begins: Wilson's for shares of pages, else the bootstrap's over pages."""
    high: float

    @property
    def value(self) -> float:
        """The ratio; NaN where there is nothing to measure."""
        return self.part / self.whole if self.whole else math.nan

    @property
    def meets_aim(self) -> bool | None:
        """Whether the value is as good as the aim; None without an aim, or with nothing to measure."""
        aim = self.measure.aim
        if aim is None or not self.whole:
            return None
        return self.value >= aim if self.measure.better == "higher" else self.value <= aim

    def shown(self, value: float) -> str:
        """Write a value of this measure, in per cent where it is a share."""
        if math.isnan(value):
            return "-"
        return f"{100 * value:.1f} %" if self.measure.unit == "%" else f"{value:.3f}"

    def to_json(self) -> dict[str, Any]:
        """Give what was measured, its counts, interval and aim, with null for what there was nothing to measure of."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        known = {name: None if math.isnan(number) else number for name, number in numbers.items()}
        aim = {"aim": self.measure.aim, "meets_aim": self.meets_aim}
        return {"measure": self.measure.name, "part": self.part, "whole": self.whole, **known, **aim}


def figures(pages: Sequence[PageQuality]) -> list[Figure]:
    """Give every measure of ``pages``; the same pages give the same intervals."""
    return [_figure(measure, pages) for measure in MEASURES]


def table(found: Sequence[Figure]) -> Iterator[str]:
    """Yield the figures as lines, with their intervals, their counts and their aims."""
    yield f"{'':<38}{'value':>9}  {'95 % interval':<19}{'of':>9}  aim"
    for figure in found:
        value, low, high = map(figure.shown, (figure.value, figure.low, figure.high))
        interval = f"{low} to {high}" if figure.whole else ""
        yield f"{figure.measure.name:<38}{value:>9}  {interval:<19}{figure.whole:>9.0f}  {_aim(figure)}".rstrip()


def wilson(part: float, whole: float) -> tuple[float, float]:
    """Give the 95 % interval of a share: ``part`` of ``whole`` independent yes-or-no answers, at least one."""
    share, spread = part / whole, Z95**2 / whole
    centre = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def bootstrap(parts: Sequence[float], wholes: Sequence[float]) -> tuple[float, float]:
    """Give the 95 % interval of ``sum(parts) / sum(wholes)`` as the pages that they are of are drawn anew."""
    drawn = np.random.default_rng(0).integers(len(parts), size=(RESAMPLES, len(parts)))
    sums = [np.asarray(values, dtype=float)[drawn].sum(axis=1) for values in (parts, wholes)]
    ratios: npt.NDArray[np.float64] = sums[0][sums[1] > 0] / sums[1][sums[1] > 0]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _figure(measure: Measure, pages: Sequence[PageQuality]) -> Figure:
    parts, wholes = [[float(of(page)) for page in pages] for of in (measure.part, measure.whole)]
    part, whole = sum(parts), sum(wholes)
    if not whole:
        return Figure(measure, part, whole, math.nan, math.nan)
    low, high = wilson(part, whole) if measure.whole is _page else bootstrap(parts, wholes)
    return Figure(measure, part, whole, low, high)


def _aim(figure: Figure) -> str:
    if figure.measure.aim is None:
        return ""
    met = {True: "met", False: "missed", None: "not measured"}[figure.meets_aim]
    bound = "at least" if figure.measure.better == "higher" else "at most"
    return f"{bound} {figure.shown(figure.measure.aim)}: {met}"
