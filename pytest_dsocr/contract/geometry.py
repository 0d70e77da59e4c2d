"""Figures that the model describes as lines and points: read without ``eval``, drawn like the vendor's ``geo.jpg``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from PIL import Image, ImageDraw, ImageFont

from pytest_dsocr.contract.literal import Value, read_literal
from pytest_dsocr.contract.markup import quote
from pytest_dsocr.contract.overlay import printable
from pytest_dsocr.foundation.errors import DsocrError

Point = tuple[float, float]
Line = tuple[Point, Point]
Entry = TypeVar("Entry")

MARKER = "line_type"  # the vendor takes any output that holds this word for a geometry figure
SIZE_PX = 600
LIMIT = 15  # both axes run from -LIMIT to LIMIT
FARTHEST = 1e6  # beyond it a coordinate counts as unreadable

_SCALE = 3  # drawn larger, then reduced: smooth edges
# Where the vendor's plotting library puts the axes, as shares of the canvas, and the ticks it chooses.
_LEFT, _TOP, _RIGHT, _BOTTOM = (round(share * SIZE_PX * _SCALE) for share in (0.125, 0.12, 0.9, 0.89))
_X_TICKS, _Y_TICKS = range(-10, 11, 10), range(-15, 16, 5)
_LINE_PX, _DOT_RADIUS_PX, _TICK_PX, _GAP_PX = 7, 14, 20, 9
_NAME_PX, _TICK_NAME_PX = 48, 66


@dataclass(frozen=True)
class Geometry:
    """Lines and named points, in the units of the axes, and what could not be read."""

    lines: tuple[Line, ...]
    points: tuple[tuple[str, Point], ...]
    problems: tuple[str, ...]


def is_geometry(mmd: str) -> bool:
    """Tell whether the vendor would take the text of ``result.mmd`` for a geometry figure."""
    return MARKER in mmd


def read_geometry(mmd: str) -> Geometry:
    """Read the text of ``result.mmd`` as a geometry figure.

    It is ``{"Line": {"line": ["(x, y) -- (x, y)", ...], "line_type": ["--", ...],
    "line_endpoint": ["A: (x, y)", ...]}, ...}``. As with the vendor, a line without a type is left out.

    Raises:
        DsocrError: where the text as a whole is not of this form.
    """
    try:
        figure = read_literal(mmd)
        types, described, endpoints = (_entries(figure, name) for name in (MARKER, "line", "line_endpoint"))
    except ValueError as error:
        raise DsocrError(
            f"the output speaks of {MARKER!r} but is no geometry figure: {error}; read it as text"
        ) from error
    lines, line_problems = _read_each(described[: len(types)], _line)
    points, point_problems = _read_each(endpoints, _endpoint)
    untyped = [f"{quote(str(line))} has no type and is left out" for line in described[len(types) :]]
    return Geometry(lines, points, (*line_problems, *untyped, *point_problems))


def draw_geometry(geometry: Geometry) -> Image.Image:
    """Draw ``geometry`` in black on white axes, 600 x 600 px; what lies beyond the axes is cut off."""
    canvas = Image.new("RGB", (SIZE_PX * _SCALE, SIZE_PX * _SCALE), "white")
    draw = ImageDraw.Draw(canvas)
    for ends in geometry.lines:
        draw.line([_to_canvas(point) for point in ends], fill="black", width=_LINE_PX)
        for point in ends:
            draw.circle(_to_canvas(point), _DOT_RADIUS_PX, fill="black")
    _blank_margins(draw)
    _draw_axes(draw)
    font = ImageFont.load_default(_NAME_PX)
    for name, point in geometry.points:
        if max(map(abs, point)) <= LIMIT:
            x, y = _to_canvas(point)
            draw.text((x + _GAP_PX, y - _GAP_PX), printable(name), font=font, fill="black", anchor="ls")
    return canvas.resize((SIZE_PX, SIZE_PX), Image.Resampling.LANCZOS)


def _read_each(entries: Sequence[Value], read: Callable[[str], Entry]) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    done: list[Entry] = []
    problems: list[str] = []
    for entry in entries:
        try:
            if not isinstance(entry, str):
                raise ValueError("it is no string")
            done.append(read(entry))
        except ValueError as error:
            problems.append(f"{quote(str(entry))} cannot be read: {error}")
    return tuple(done), tuple(problems)


def _line(text: str) -> Line:
    ends = text.split(" -- ")
    return _point(ends[0]), _point(ends[-1])


def _endpoint(text: str) -> tuple[str, Point]:
    name, *rest = text.split(": ")
    if not rest:
        raise ValueError("it is not of the form 'name: (x, y)'")
    return name, _point(rest[0])


def _point(text: str) -> Point:
    value = read_literal(text)
    match value:
        case (int() | float() as x, int() | float() as y) if max(abs(x), abs(y)) <= FARTHEST:
            return float(x), float(y)
    raise ValueError(f"{quote(text)} is no point")


def _entries(figure: Value, name: str) -> Sequence[Value]:
    match figure:
        case {"Line": {**found}} if isinstance(entries := found.get(name), list | tuple):
            return entries
    raise ValueError(f"it has no list 'Line' / {name!r}")


def _to_canvas(point: Point) -> Point:
    across, up = ((coordinate + LIMIT) / (2 * LIMIT) for coordinate in point)
    return _LEFT + across * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)


def _blank_margins(draw: ImageDraw.ImageDraw) -> None:
    end = SIZE_PX * _SCALE
    for margin in ((0, 0, end, _TOP), (0, _BOTTOM, end, end), (0, 0, _LEFT, end), (_RIGHT, 0, end, end)):
        draw.rectangle(margin, fill="white")


def _draw_axes(draw: ImageDraw.ImageDraw) -> None:
    font = ImageFont.load_default(_TICK_NAME_PX)
    half = _LINE_PX // 2
    draw.rectangle((_LEFT - half, _TOP - half, _RIGHT + half, _BOTTOM + half), outline="black", width=_LINE_PX)
    for tick in _X_TICKS:
        x, _ = _to_canvas((tick, 0))
        draw.line((x, _BOTTOM, x, _BOTTOM + _TICK_PX), fill="black", width=_LINE_PX)
        draw.text((x, _BOTTOM + 2 * _TICK_PX), str(tick), font=font, fill="black", anchor="mt")
    for tick in _Y_TICKS:
        _, y = _to_canvas((0, tick))
        draw.line((_LEFT - _TICK_PX, y, _LEFT, y), fill="black", width=_LINE_PX)
        draw.text((_LEFT - 2 * _TICK_PX, y), str(tick), font=font, fill="black", anchor="rm")
