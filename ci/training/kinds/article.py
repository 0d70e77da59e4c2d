"""Articles: headings, paragraphs, equations and pictures, in one column or in two."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.column import Column
from ci.training.kinds.parts import beside, figure, tabulation
from ci.training.sheet import GUTTER_PX, Sheet


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
    spared = sheet.writer.left // 2
    sheet.writer.left -= spared
    yield from _body(sheet, first)
    sheet.writer.left += spared
    yield _across(sheet, first, second)
    yield from _body(sheet, second)
    yield from sheet.footer()


def _body(sheet: Sheet, column: Column) -> Iterator[Draft | None]:
    number = sheet.rng.randint(1, 9)
    while sheet.writer.left > 0 and column.room > 2 * sheet.body.pitch_px:
        if sheet.rng.random() < 0.25:
            yield sheet.sub_heading(column)
            sheet.gap(column)
        part = sheet.rng.choices(("text", "equation", "figure", "beside", "table"), (58, 20, 9, 8, 5))[0]
        if part == "text":
            yield sheet.paragraph(column)
        elif part == "equation":
            yield sheet.formula(column)
        elif part == "beside" and column.width > 640:
            yield from beside(sheet, column)
        else:
            yield from (tabulation if part == "table" else figure)(sheet, column, number)
            number += 1
        sheet.gap(column)


def _across(sheet: Sheet, first: Column, second: Column) -> Draft | None:
    """Write a paragraph of which one to three lines are at the foot of the first column."""
    first.bottom = min(first.bottom, first.top + sheet.rng.randint(1, 3) * sheet.body.pitch_px)
    words = sheet.writer.sentence(6) + sheet.writer.sentence(6)
    draft = first.run_on(words, sheet.body, second, sheet.align) if sheet.rng.random() < 0.9 else None
    if draft:
        sheet.gap(second)
    return draft
