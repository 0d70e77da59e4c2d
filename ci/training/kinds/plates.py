"""Pages of tables, and pages of pictures with captions."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.kinds.parts import beside, figure, tabulation, texts
from ci.training.sheet import GUTTER_PX, Sheet


def tables(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a title and one to three tables, with sentences between them now and then."""
    yield sheet.header()
    column = sheet.body_column()
    yield sheet.heading(column)
    sheet.gap(column)
    for number in range(1, sheet.rng.randint(2, 4)):
        if sheet.writer.left > 0:
            yield from tabulation(sheet, column, number)
            sheet.gap(column)
        if sheet.writer.left > 0 and sheet.rng.random() < 0.5:
            yield sheet.paragraph(column, most=2)
            sheet.gap(column)
    yield from texts(sheet, column, most=2)
    yield from sheet.footer()


def figures(sheet: Sheet) -> Iterator[Draft | None]:
    """Draw pictures below or beside each other, and write a little."""
    column = sheet.body_column()
    number = sheet.rng.randint(1, 9)
    if sheet.rng.random() < 0.7:
        yield sheet.heading(column)
        sheet.gap(column)
    if column.width > 640 and sheet.rng.random() < 0.6:
        halves = column.split(2, GUTTER_PX)
        for half in halves:
            yield from figure(sheet, half, number)
            number += 1
        column.top = max(half.top for half in halves)
    else:
        yield from figure(sheet, column, number)
    sheet.gap(column)
    yield from texts(sheet, column, most=2)
    if sheet.writer.left > 0 and column.width > 640:
        yield from beside(sheet, column)
    yield from sheet.footer()
