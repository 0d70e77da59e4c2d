"""Lists: a heading and items behind dashes."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.kinds.parts import listed, texts
from ci.training.sheet import Sheet


def listing(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a title, perhaps a sentence, and items, perhaps in two groups."""
    column = sheet.body_column()
    yield sheet.heading(column)
    sheet.gap(column)
    if sheet.rng.random() < 0.4:
        yield sheet.paragraph(column, most=2)
        sheet.gap(column)
    yield from listed(sheet, column, sheet.rng.randint(2, 7))
    if sheet.rng.random() < 0.4 and sheet.writer.left > 0:
        yield sheet.sub_heading(column)
        sheet.gap(column)
        yield from listed(sheet, column, sheet.rng.randint(2, 4))
    yield from texts(sheet, column, most=2)
    yield from sheet.footer()
