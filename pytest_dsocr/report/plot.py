"""Plots of a case for the page: its error along blocks and steps, and the places of the first wrong tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.tolerances import CORRECT
from pytest_dsocr.describe.description import Description, ErrorPanel
from pytest_dsocr.describe.error_digits import DIGITS, LEAST, error_of
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import ComparisonKind, ComparisonName, TensorName
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.comparison_result import ComparisonResult, number
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.strip import CARRIED, MARKS, SHORT

LEFT, TOP, BOTTOM, STEP, DECADE = 62, 14, 30, 24, 24
"""Margins of a plot, distance of two tensors, and height of a factor of ten, in pixels."""
STEPS_WIDTH = 200
LARGEST = 10.0
COLOURS = (
    *("#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89"),
    *("#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
"""The scale viridis, dark for small errors: readers who see few colours see its lightness."""
CELL = 10
STEPS_OF_COLOUR = 2
"""Digits of an error with one colour."""


class PlotPoint(NamedTuple):
    """Error of one tensor."""

    x: float
    y: float
    verdict: str
    title: str


class PlotLine(NamedTuple):
    """Errors of one view along the tensors."""

    view: str
    points: list[PlotPoint]

    @property
    def path(self) -> str:
        """The line through its points."""
        return "M" + " L".join(f"{one.x:g} {one.y:.1f}" for one in self.points)


class PlotBand(NamedTuple):
    """A stretch of tensors with one limit or range, from ``x`` on."""

    x: float
    width: float
    y: float
    words: str


@dataclass(frozen=True)
class ErrorPlot:
    """Errors along blocks and steps on a logarithmic scale."""

    width: float
    height: float
    lines: Sequence[PlotLine]
    steps: str
    """Line through the errors of the decoding steps; empty without them."""
    limits: Sequence[PlotBand]
    correct: Sequence[PlotBand]
    """Largest errors of correct variants; empty where none were measured."""
    ticks: Sequence[tuple[float, str]]
    stages: Sequence[tuple[float, str]]
    """Left end and name of each stage."""
    words: str
    """The plot in a sentence."""

    @property
    def floor(self) -> float:
        """The height of no error."""
        return self.height - BOTTOM


def plot_of(case: CaseResult, run: RunSides | None) -> ErrorPlot | None:
    """Return the plot of a case; None if no tensor was compared."""
    found = [one for one in case.comparisons if one.error is not None and _is_tensor(one.what)]
    along = next((one for one in case.comparisons if one.along), None)
    places = list(dict.fromkeys(_place(one) for one in found))
    if not places:
        return None
    at = {place: LEFT + STEP * (k + 0.5) for k, place in enumerate(places)}
    steps_x = LEFT + STEP * len(places)
    width = steps_x + (STEPS_WIDTH if along else 0) + 10
    views: dict[str, list[PlotPoint]] = {}
    for one in found:
        title = f"{one.what}: {one.verdict}, {one.measured}"
        point = PlotPoint(at[_place(one)], _y(number(one.error)), one.verdict, title)
        views.setdefault(TensorName.parse(one.what).view or "page", []).append(point)
    spans = [*_spans(found, at)]
    stages = [(x, stage if w > STEP * 2 else SHORT.get(stage, stage)) for stage, x, w in _stages(places)]
    limits = [PlotBand(x, w, _y(limit), f"{limit:g}") for limit, x, w in spans]
    if along and along.allowed is not None:
        limits.append(PlotBand(steps_x, STEPS_WIDTH, _y(number(along.allowed)), f"{number(along.allowed):g}"))
    correct = CORRECT.get((run.device, run.dtype), {}) if run and not run.nearest else {}
    kinds = [("layers" if stage == PREFILL and block is not None else stage, block) for stage, block in places]
    ranges = [PlotBand(x, w, _y(correct[of]), f"{correct[of]:.1e}") for of, x, w in _stages(kinds) if of in correct]
    ticks = [(_y(10.0**k), f"1e{k}" if k else "1") for k in range(-7, 2)]
    height = _y(LEAST) + BOTTOM
    lines = [PlotLine(view, points) for view, points in views.items()]
    steps = _steps(along.along, steps_x) if along else ""
    labels = [*stages, *([(steps_x, f"decoding steps ({case.tokens['reference']})")] if along else [])]
    return ErrorPlot(width, height, lines, steps, limits, ranges, ticks, labels, _sentence(found))


def _is_tensor(what: str) -> bool:
    name = ComparisonName.parse(what)
    return name.kind is ComparisonKind.VALUE and what not in ("prefill_best", "logits")


def _place(one: ComparisonResult) -> tuple[str, int | None]:
    name = TensorName.parse(one.what)
    return name.stage, name.block


def _y(error: float) -> float:
    """Return the height of an error, from the top."""
    place = math.log10(min(max(error, LEAST), LARGEST))
    return TOP + DECADE * (math.log10(LARGEST) - place)


def _spans(
    found: Sequence[ComparisonResult], at: Mapping[tuple[str, int | None], float]
) -> Iterator[tuple[float, float, float]]:
    """Yield each limit with the left end and width of the neighbouring tensors that have it."""
    allowed = {at[_place(one)]: number(one.allowed) for one in found if one.allowed is not None}
    for limit, group in groupby(sorted(allowed), key=allowed.__getitem__):
        xs = [*group]
        yield limit, xs[0] - STEP / 2, xs[-1] - xs[0] + STEP


def _stages(places: Sequence[tuple[str, int | None]]) -> Iterator[tuple[str, float, float]]:
    x = float(LEFT)
    for stage, group in groupby(place[0] for place in places):
        width = STEP * len([*group])
        yield stage, x, width
        x += width


def _steps(along: str, left: float) -> str:
    across = STEPS_WIDTH / max(1, len(along))
    return "M" + " L".join(f"{left + across * (k + 0.5):.1f} {_y(error_of(one)):.1f}" for k, one in enumerate(along))


def _sentence(found: Sequence[ComparisonResult]) -> str:
    wrong = [one for one in found if one.verdict == "WRONG"]
    if not wrong:
        worst = max(found, key=lambda one: number(one.error))
        largest = f"the largest error is {number(worst.error):.1e}, of {worst.what}"
        return f"{count(len(found), 'tensor')} within the limits; {largest}."
    first, last = (f"{one.what} with {number(one.error):.1e}" for one in (wrong[0], found[-1]))
    return f"{len(wrong)} of {count(len(found), 'tensor')} wrong. The first is {first}, the last tensor {last}."


@dataclass(frozen=True)
class HeatMap:
    """Places of the first wrong tensor, each panel as paths of one colour."""

    panels: Sequence[HeatPanel]
    scale: Sequence[tuple[str, str]]
    """Colours, each with its largest error."""


@dataclass(frozen=True)
class HeatPanel:
    """A part of a tensor."""

    title: str
    width: int
    height: int
    paths: Sequence[tuple[str, str]]
    """Colour and path of its cells."""
    lines: str
    """Path of the lines between views."""
    words: str


def heat_of(described: Description | None) -> HeatMap | None:
    """Return the places of a described tensor; None if it has none."""
    digits = {one for panel in described.places for row in panel.rows for one in row} if described else set()
    if not described or not (seen := sorted(map(DIGITS.index, digits - {DIGITS[0]}))):
        return None
    least = max(seen[0], seen[-1] + 1 - STEPS_OF_COLOUR * len(COLOURS))
    used = (seen[-1] - least) // STEPS_OF_COLOUR + 1
    colours = COLOURS[len(COLOURS) - used :]
    scale = [
        (colour, f"{error_of(DIGITS[min(least + STEPS_OF_COLOUR * (k + 1) - 1, seen[-1])]):.0e}")
        for k, colour in enumerate(colours)
    ]
    return HeatMap([_panel(one, least, colours) for one in described.places], scale)


def _panel(panel: ErrorPanel, least: int, colours: Sequence[str]) -> HeatPanel:
    cells: dict[str, list[str]] = {}
    for y, row in enumerate(panel.rows):
        x = 0
        for character, run in groupby(row):
            wide = len([*run])
            if place := DIGITS.index(character):
                colour = colours[max(0, (place - least) // STEPS_OF_COLOUR)]
                cells.setdefault(colour, []).append(f"M{x * CELL} {y * CELL}h{wide * CELL}v{CELL}h-{wide * CELL}z")
            x += wide
    height, width = CELL * len(panel.rows), CELL * max(map(len, panel.rows))
    across = [f"M{width * k / panel.columns:g} 0v{height}" for k in range(1, panel.columns)]
    down = [f"M0 {height * k / panel.stacked:g}h{width}" for k in range(1, panel.stacked)]
    paths = [(colour, "".join(of)) for colour, of in cells.items()]
    return HeatPanel(panel.title, width, height, paths, "".join(across + down), _of_panel(panel))


def _of_panel(panel: ErrorPanel) -> str:
    every = [(one, x, y) for y, row in enumerate(panel.rows) for x, one in enumerate(row)]
    right = sum(one == DIGITS[0] for one, *_ in every)
    worst, x, y = max(every, key=lambda cell: DIGITS.index(cell[0]))
    where = f"row {y}, column {x}" if len(panel.rows) > 1 else f"field {x}"
    return f"{right} of {len(every)} fields are equal; the largest error, {error_of(worst):.0e}, is in {where}"


LEGEND = [(str(verdict), *said) for verdict, said in MARKS.items()] + [("carried", *CARRIED)]
