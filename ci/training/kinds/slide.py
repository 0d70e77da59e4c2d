"""Slides: a large title, items, and a picture beside or below them."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.kinds.parts import figure, listed, tabulation, texts
from ci.training.page import Rect
from ci.training.sheet import ACCENTS, GUTTER_PX, Sheet


def slide(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a slide, mostly with a coloured edge."""
    if sheet.rng.random() < 0.6:
        sheet.canvas.fill(Rect(0, 0, sheet.rng.uniform(8, 22), sheet.canvas.height_px), sheet.rng.choice(ACCENTS))
    column = sheet.body_column()
    yield sheet.heading(column, fewest=2)
    sheet.gap(column)
    left, right = column.split(2, GUTTER_PX)
    if sheet.rng.random() < 0.3:
        left.right = right.right
        right.bottom = right.top
    yield from listed(sheet, left, sheet.rng.randint(2, 5))
    part = tabulation if sheet.rng.random() < 0.25 else figure
    yield from part(sheet, right, sheet.rng.randint(1, 9))
    column.top = max(left.top, right.top)
    sheet.gap(column)
    yield from texts(sheet, column, most=1)
    yield from sheet.footer()
