"""The simplest page: a few blocks of text, as large as there is room for. What a model learns first."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.sheet import Sheet


def note(sheet: Sheet) -> Iterator[Draft | None]:
    """Write texts, the first of which may be a title."""
    column = sheet.page.inset(0)
    column.skip(sheet.rng.uniform(0, 0.6) * column.room)
    if sheet.rng.random() < 0.4:
        yield sheet.heading(column, fewest=2, most=3)
        sheet.gap(column)
    while sheet.writer.left > 0:
        shortest = min(3, sheet.writer.left)
        sentence = sheet.writer.sentence(shortest, max(shortest, min(9, sheet.writer.left)))
        yield column.text("text", sentence, sheet.body)
        sheet.gap(column)
