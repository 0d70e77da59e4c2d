"""What pages cost, drawn: charts with a bar for each page, stage upon stage, the pages of a grid side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from pytest_dsocr.cost.pages import Priced, by_grid
from pytest_dsocr.cost.roofline import Device
from pytest_dsocr.foundation.templates import templates
from pytest_dsocr.foundation.words import si
from pytest_dsocr.perf.summary import ms
from pytest_dsocr.report.costs import FIVE, figures_of, grid_in_words

TEMPLATE = "cost.html.j2"
WIDTH, HEIGHT, MARGIN, LEFT, BOTTOM = 960.0, 260.0, 12.0, 64.0, 24.0
"""Of a chart, in its own units; ``LEFT`` and ``BOTTOM`` are for what is written beside it."""
BAR, MOST_BAR = 0.8, 48.0
"""Of a bar's place, and units at most."""
LABEL = 36.0
"""The narrowest group of bars that has room for its grid."""
FEWEST_TICKS = 3
ROUND = (5.0, 2.0, 1.0)


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
class Chart:
    """One quantity of every page."""

    title: str
    pieces: tuple[Piece, ...]
    ticks: tuple[tuple[float, str], ...]
    """Lines across it: where, and what for."""
    groups: tuple[tuple[float, str], ...]
    """The grids below the bars: the middle of each, and its name."""


def html(pages: Sequence[Priced], device: Device) -> str:
    """Give the page; it needs no network and no script, and all that is told in it is escaped."""
    groups = by_grid(pages)
    ordered = [page for group in groups.values() for page in group]
    stages = [*ordered[0].stages]
    charts = (
        chart("matrix FLOPs", ordered, stages, lambda page, stage: page.stages[stage].cost.matrix_flops, _flop),
        chart(
            "least time to the first token",
            ordered,
            [stage for stage in stages if stage != "decode"],
            lambda page, stage: page.bound(stage, device).ms,
            ms,
        ),
    )
    return (
        templates(Path(__file__).parent)
        .get_template(TEMPLATE)
        .render(
            charts=charts,
            pages=ordered,
            stages=stages,
            device=device,
            dtype=ordered[0].work.dtype,
            figures=figures_of(ordered, device),
            five=FIVE,
            grids=[(grid_in_words(group[0].work), group) for group in groups.values()],
            least=lambda page: ms(page.least(device).ms),
            width=WIDTH,
            height=HEIGHT,
            left=LEFT,
        )
    )


def chart(
    title: str,
    pages: Sequence[Priced],
    stages: Sequence[str],
    value_of: Callable[[Priced, str], float],
    tell: Callable[[float], str],
) -> Chart:
    """Lay a quantity out: a page a step to the right, 0 at the bottom, the stages one upon the other."""
    most = max(sum(value_of(page, stage) for stage in stages) for page in pages) or 1.0
    step = (WIDTH - LEFT - MARGIN) / len(pages)
    width = min(BAR * step, MOST_BAR)

    def height(value: float) -> float:
        return value / most * (HEIGHT - BOTTOM - MARGIN)

    def bar(place: int, page: Priced) -> Iterator[Piece]:
        values = {stage: value_of(page, stage) for stage in stages}
        whole = f"of {tell(sum(values.values()))}, {page.name}, {grid_in_words(page.work)}"
        for (stage, value), top in zip(values.items(), accumulate(values.values()), strict=True):
            x = LEFT + (place + 0.5) * step - width / 2
            yield Piece(stage, x, HEIGHT - BOTTOM - height(top), width, height(value), f"{stage} {tell(value)} {whole}")

    return Chart(
        title,
        tuple(piece for place, page in enumerate(pages) for piece in bar(place, page)),
        tuple((HEIGHT - BOTTOM - height(value), tell(value)) for value in ticks(most)),
        tuple(_groups(pages, step)),
    )


def ticks(most: float) -> list[float]:
    """Give round numbers from 0 up to ``most``, at equal distances."""
    power = 10 ** math.floor(math.log10(most / FEWEST_TICKS))
    step = next(factor * power for factor in ROUND if factor * power * FEWEST_TICKS <= most)
    return [number * step for number in range(int(most / step) + 1)]


def _groups(pages: Sequence[Priced], step: float) -> Iterator[tuple[float, str]]:
    start = 0
    for (columns, rows), group in by_grid(pages).items():
        if len(group) * step >= LABEL:
            yield LEFT + (start + len(group) / 2) * step, f"{columns} x {rows}"
        start += len(group)


def _flop(value: float) -> str:
    return f"{si(value)}FLOP"
