"""A history drawn: a line of text a stage for the terminal, and a page with a chart a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.files import templates
from pytest_dsocr.foundation.words import count, fit
from pytest_dsocr.perf.history import Line, Series, Spread
from pytest_dsocr.perf.words import GLYPHS, ms

FOLDER, TEMPLATE = Path(__file__).parent, "history.html.j2"
MOST_BARS = 40
WIDTH, HEIGHT, MARGIN = 640.0, 120.0, 12.0
"""Of a chart, in its own units."""


@dataclass(frozen=True)
class Point:
    """One run in a chart: where it is drawn, and what is told of it."""

    x: float
    y: float
    top: float
    bottom: float
    told: str
    verdict: str


@dataclass(frozen=True)
class Chart:
    """One quantity over the runs."""

    quantity: str
    points: tuple[Point, ...]
    most_ms: float
    last: str

    @property
    def path(self) -> str:
        """The line through the medians, as SVG has it."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


def lines_of(series: Sequence[Series], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the history for a terminal: each quantity's medians as bars, then the last one with its quartiles."""
    for one in series:
        yield fit(one.title)
        yield f"  {count(len(one.lines), 'run')}, from {one.lines[0].date[:10]} to {one.lines[-1].date[:10]}"
        for quantity in one.quantities:
            found = one.of(quantity)
            since = f", {_ms(found[0][1])} at {found[0][0].short} first" if len(found) > 1 else ""
            bars = sparkline([spread.median_ms for _, spread in found])
            yield f"  {quantity:<16}{bars}  {_told(quantity, *found[-1])}{since}"
        yield ""
    if len(series) > 1:
        yield f"{len(series)} charts, for runs of another machine, subject, setting or page do not compare"
    yield from (f"problem     {why}" for why in damaged)


def sparkline(values: Sequence[float]) -> str:
    """Give a bar for each of the last values, between 0 and the largest."""
    last = values[-MOST_BARS:]
    most = max(last)
    return "".join(GLYPHS[round(value / most * (len(GLYPHS) - 1))] if most > 0 else GLYPHS[0] for value in last)


def html(series: Sequence[Series], damaged: Sequence[str]) -> str:
    """Give the page; it needs no network and no script, and all that is told in it is escaped."""
    return templates(FOLDER).get_template(TEMPLATE).render(damaged=damaged, **drawn(series))


def drawn(series: Sequence[Series]) -> dict[str, Any]:
    """Give what the template ``charts.html.j2`` takes."""
    shown = [(one, [chart(one, quantity) for quantity in one.quantities]) for one in series]
    return {"series": shown, "width": WIDTH, "height": HEIGHT, "margin": MARGIN}


def chart(series: Series, quantity: str) -> Chart:
    """Lay one quantity out: a run a step to the right, 0 at the bottom."""
    found = series.of(quantity)
    most_ms = max(spread.high_ms for _, spread in found) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(len(found) - 1, 1)

    def y(time_ms: float) -> float:
        return HEIGHT - MARGIN - time_ms / most_ms * (HEIGHT - 2 * MARGIN)

    points = tuple(
        Point(
            MARGIN + k * step,
            y(spread.median_ms),
            y(spread.high_ms),
            y(spread.low_ms),
            f"{_told(quantity, line, spread)}, {line.date}",
            line.verdicts.get(quantity, ""),
        )
        for k, (line, spread) in enumerate(found)
    )
    return Chart(quantity, points, most_ms, _told(quantity, *found[-1]))


def _told(quantity: str, line: Line, spread: Spread) -> str:
    verdict = line.verdicts.get(quantity, "")
    return f"{_ms(spread)} at {line.short}" + (f" ({verdict})" if verdict else "")


def _ms(spread: Spread) -> str:
    return f"{ms(spread.median_ms)} ({ms(spread.low_ms)} to {ms(spread.high_ms)})"
