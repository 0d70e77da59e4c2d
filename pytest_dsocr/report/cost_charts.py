"""What pages cost, drawn: a page with a bar for each page, stage upon stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from pytest_dsocr.foundation.templates import templates
from pytest_dsocr.perf.words import ms
from pytest_dsocr.report.costs import FIVE, figures_of, grid_in_words
from pytest_dsocr.workload.roofline import Device
from pytest_dsocr.workload.spread import Priced, by_grid

TEMPLATE = "cost.html.j2"
WIDTH, HEIGHT, MARGIN, AXIS = 960.0, 300.0, 12.0, 60.0
"""Of the chart, in its own units."""
MOST_BAR = 48.0
TICKS = 4


@dataclass(frozen=True)
class Piece:
    """A stage of one page's bar."""

    stage: str
    x: float
    y: float
    width: float
    height: float
    told: str


@dataclass(frozen=True)
class Tick:
    """A line across the chart."""

    y: float
    told: str


def html(pages: Sequence[Priced], device: Device) -> str:
    """Give the page; it needs no network and no script, and all that is told in it is escaped."""
    ordered = sorted(pages, key=lambda page: page.least(device).ms)
    template = templates(Path(__file__).parent).get_template(TEMPLATE)
    return template.render(
        pages=ordered,
        device=device,
        dtype=pages[0].work.dtype,
        figures=figures_of(pages, device),
        five=FIVE,
        grids=[(grid_in_words(group[0].work), group) for group in by_grid(pages).values()],
        least=lambda page: ms(page.least(device).ms),
        pieces=list(pieces(ordered, device)),
        ticks=list(ticks(ordered, device)),
        stages=list(ordered[0].stages),
        width=WIDTH,
        height=HEIGHT,
        axis=AXIS,
    )


def pieces(pages: Sequence[Priced], device: Device) -> Iterator[Piece]:
    """Yield the bars, 0 at the bottom: the least time of each stage, one upon the other."""
    most_ms = greatest_ms(pages, device)
    step = (WIDTH - AXIS - MARGIN) / len(pages)
    width = min(0.8 * step, MOST_BAR)
    for place, page in enumerate(pages):
        least_ms = {stage: page.bound(stage, device).ms for stage in page.stages}
        for (stage, time_ms), top_ms in zip(least_ms.items(), accumulate(least_ms.values()), strict=True):
            told = f"{page.name}, {grid_in_words(page.work)}: {stage} {ms(time_ms)} of {ms(sum(least_ms.values()))}"
            x = AXIS + place * step + (step - width) / 2
            yield Piece(stage, x, _y(top_ms, most_ms), width, _y(0, most_ms) - _y(time_ms, most_ms), told)


def ticks(pages: Sequence[Priced], device: Device) -> Iterator[Tick]:
    """Yield lines at equal distances, from 0 to the greatest time."""
    most_ms = greatest_ms(pages, device)
    for number in range(TICKS + 1):
        yield Tick(_y(most_ms * number / TICKS, most_ms), ms(most_ms * number / TICKS))


def greatest_ms(pages: Sequence[Priced], device: Device) -> float:
    """Give the least time of the page that has the greatest."""
    return max(page.least(device).ms for page in pages)


def _y(time_ms: float, most_ms: float) -> float:
    return HEIGHT - MARGIN - time_ms / most_ms * (HEIGHT - 2 * MARGIN)
