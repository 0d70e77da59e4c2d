"""Tables: cells of words between rules, or on rows of changing colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from random import Random

from ci.training.canvas import Canvas, Draft
from ci.training.column import Column
from ci.training.page import Rect, Word
from ci.training.typography import ASCENT, DESCENT, Colour, Style

Rows = Sequence[Sequence[Sequence[str]]]
"""The words of each cell of each row."""

RULE_PX = 3.0
CELL_PAD_PX = 18.0
TINTS: tuple[Colour, ...] = ((214, 224, 238), (226, 226, 226), (232, 224, 206), (216, 234, 220))


def draw_table(column: Column, rows: Rows, style: Style, rng: Random) -> Draft | None:
    """Draw a table into ``column``; None where it is too wide or too high."""
    widths = list(_widths(column.canvas, rows, style))
    slack_px = column.width - sum(widths)
    row_px = style.em_px * rng.uniform(1.5, 2.1)
    if slack_px < 0 or row_px * len(rows) > column.room:
        return None
    extra_px = slack_px * rng.uniform(0, 1) / len(widths)
    left = column.left + (slack_px - extra_px * len(widths)) * rng.choice((0, 0.5))
    xs = list(accumulate((width + extra_px for width in widths), initial=left))
    ys = [column.top + row_px * number for number in range(len(rows) + 1)]
    outline = _rule(column.canvas, xs, ys, style.ink, rng)
    words = tuple(_fill(column.canvas, rows, xs, ys, style))
    column.skip(ys[-1] - ys[0])
    return Draft("table", ((outline,),), _html(rows), words)


def _widths(canvas: Canvas, rows: Rows, style: Style) -> Iterator[float]:
    bold = replace(style, bold=True)
    for cells in zip(*rows, strict=True):
        yield max(_advance(canvas, words, bold) for words in cells) + 2 * CELL_PAD_PX


def _advance(canvas: Canvas, words: Sequence[str], style: Style) -> float:
    space_px = style.space * style.em_px
    return sum(canvas.advance_px(word, style) for word in words) + space_px * (len(words) - 1)


def _rule(canvas: Canvas, xs: list[float], ys: list[float], ink: Colour, rng: Random) -> Rect:
    look = rng.choice(("grid", "lines", "zebra"))
    tint = rng.choice(TINTS)
    if look == "zebra":
        for top, bottom in list(pairwise(ys))[::2]:
            canvas.fill(Rect(xs[0], top, xs[-1], bottom), tint)
    for y in (ys[0], ys[1], ys[-1]) if look != "grid" else ys:
        canvas.fill(Rect(xs[0], y - RULE_PX / 2, xs[-1], y + RULE_PX / 2), ink)
    for x in xs if look == "grid" else []:
        canvas.fill(Rect(x - RULE_PX / 2, ys[0], x + RULE_PX / 2, ys[-1]), ink)
    half = RULE_PX / 2
    return canvas.bounds(Rect(xs[0] - half, ys[0] - half, xs[-1] + half, ys[-1] + half))


def _fill(canvas: Canvas, rows: Rows, xs: list[float], ys: list[float], style: Style) -> Iterator[Word]:
    for number, cells in enumerate(rows):
        face = replace(style, bold=number == 0)
        baseline = (ys[number] + ys[number + 1]) / 2 + (ASCENT - DESCENT) / 2 * style.em_px
        for x, words in zip(xs, cells, strict=False):
            pen = x + CELL_PAD_PX
            for word in words:
                yield canvas.write(word, pen, baseline, face)
                pen += canvas.advance_px(word, face) + face.space * face.em_px


def _html(rows: Rows) -> str:
    cells = ("".join(f"<td>{' '.join(words)}</td>" for words in row) for row in rows)
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"
