"""Letters: whom to, when, what about, and who wrote."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.sheet import Sheet
from ci.training.typography import Align


def letter(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a letter, mostly with the sender's name above it."""
    column, writer = sheet.body_column(), sheet.writer
    if sheet.rng.random() < 0.5:
        yield sheet.heading(column, most=2)
        sheet.gap(column)
    yield column.lines("text", writer.address(), sheet.body)
    sheet.gap(column)
    side: Align = sheet.rng.choice(("left", "right"))
    yield column.text("text", ["Date:", *writer.date()], sheet.body, side)
    sheet.gap(column)
    yield column.text("text", ["Dear", *writer.capitalised(0, 1), writer.words(1)[0].capitalize() + ","], sheet.body)
    sheet.gap(column)
    while writer.left > 0 and column.room > 4 * sheet.body.pitch_px:
        yield sheet.paragraph(column)
        sheet.gap(column)
    yield column.lines("text", [["Yours,"], writer.capitalised(1, 2)], sheet.body, side)
    yield from sheet.footer()
