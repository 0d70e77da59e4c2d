"""Articles: headings, paragraphs, equations and pictures, in one column or in two."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.mini.canvas import Draft
from pytest_dsocr.mini.column import Column
from pytest_dsocr.mini.sheet import GAP_PX, GUTTER_PX, Sheet


def article(sheet: Sheet) -> Iterator[Draft | None]:
    """Write an article in one column."""
    yield sheet.header()
    column = sheet.body_column()
    yield sheet.heading(column)
    sheet.gap(column)
    yield from _body(sheet, column)
    yield from sheet.footer()


def two_columns(sheet: Sheet) -> Iterator[Draft | None]:
    """Write an article in two columns, one paragraph of which may begin in the first and end in the second."""
    yield sheet.header()
    column = sheet.body_column()
    yield sheet.heading(column)
    sheet.gap(column)
    first, second = column.split(2, GUTTER_PX)
    first.bottom = first.top + first.room * sheet.rng.uniform(0.5, 1)
    budget, sheet.writer.left = sheet.writer.left, sheet.writer.left // 2
    yield from _body(sheet, first)
    sheet.writer.left += budget - budget // 2
    if first.room > 2 * sheet.body.pitch_px:
        first.bottom = first.top + sheet.rng.randint(1, 3) * sheet.body.pitch_px + 1
        yield first.run_on(sheet.writer.sentence(7, 11) + sheet.writer.sentence(), sheet.body, second)
        sheet.gap(second)
    yield from _body(sheet, second)
    yield from sheet.footer()


def _body(sheet: Sheet, column: Column) -> Iterator[Draft | None]:
    number = sheet.rng.randint(1, 9)
    while sheet.writer.left > 0 and column.room > 2 * sheet.body.pitch_px:
        chance = sheet.rng.random()
        if chance < 0.3:
            yield sheet.sub_heading(column)
            sheet.gap(column)
        if 0.3 < chance < 0.42:
            yield sheet.formula(column)
        elif 0.42 < chance < 0.54:
            yield from _figure(sheet, column, number)
            number += 1
        else:
            yield sheet.paragraph(column)
        sheet.gap(column)


def _figure(sheet: Sheet, column: Column, number: int) -> Iterator[Draft | None]:
    width = column.width * sheet.rng.uniform(0.5, 1)
    picture = sheet.picture(column, width, width * sheet.rng.uniform(0.4, 0.75))
    yield picture
    column.skip(GAP_PX)
    if picture and sheet.rng.random() < 0.8:
        yield sheet.caption(column, "Figure", number)
