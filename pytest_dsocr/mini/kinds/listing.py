"""Lists: a heading and items behind dashes."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.mini.canvas import Draft
from pytest_dsocr.mini.sheet import Sheet


def listing(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a title, perhaps a sentence, and items."""
    column = sheet.body_column()
    yield sheet.heading(column)
    sheet.gap(column)
    if sheet.rng.random() < 0.4:
        yield sheet.paragraph(column, most=1)
        sheet.gap(column)
    for _ in range(sheet.rng.randint(2, 9)):
        if sheet.writer.left <= 0:
            break
        yield column.item(sheet.writer.sentence(2, 6), sheet.body)
        sheet.gap(column)
    yield from sheet.footer()
