"""What several kinds of pages have: pictures and tables with captions, and texts beside pictures."""

from __future__ import annotations

from collections.abc import Iterator

from ci.training.canvas import Draft
from ci.training.column import Column
from ci.training.sheet import GAP_PX, Sheet

ROOM_FOR_A_ROW_PX = 90
"""At least what a table's row or a line of its caption takes."""


def figure(sheet: Sheet, column: Column, number: int) -> Iterator[Draft | None]:
    """Draw a picture, mostly with its caption below."""
    width = column.width * sheet.rng.uniform(0.5, 1)
    picture = sheet.picture(column, width, min(width * sheet.rng.uniform(0.4, 0.75), 0.8 * column.room))
    yield picture
    if picture and sheet.rng.random() < 0.85:
        column.skip(GAP_PX)
        yield sheet.caption(column, "Figure", number)


def tabulation(sheet: Sheet, column: Column, number: int) -> Iterator[Draft | None]:
    """Draw a table with a caption above or below it, or with none; nothing where there is no room."""
    place = sheet.rng.choice(("above", "below", "above", "below", "none"))
    rows, columns = sheet.rng.randint(2, 6), sheet.rng.randint(2, 4)
    if column.room < ROOM_FOR_A_ROW_PX * (rows + 2):
        return
    if place == "above":
        yield sheet.caption(column, "Table", number)
        column.skip(GAP_PX)
    table = sheet.table(column, rows, columns) or sheet.table(column, 2, 2)
    yield table
    if table and place == "below":
        column.skip(GAP_PX)
        yield sheet.caption(column, "Table", number)


def beside(sheet: Sheet, column: Column) -> Iterator[Draft | None]:
    """Draw a picture at the right, and a text that begins at its left and mostly goes on below it."""
    width = column.width * sheet.rng.uniform(0.35, 0.5)
    height = sheet.rng.randint(2, 4) * sheet.body.pitch_px
    picture = sheet.picture(column.inset(column.width - width), width, height)
    yield picture
    if picture:
        narrow = column.inset(0, width + 2 * GAP_PX)
        narrow.bottom = column.top + height
        column.skip(height + GAP_PX)
        words = [word for _ in range(2) for word in sheet.writer.sentence(6)]
        yield narrow.run_on(words, sheet.body, column)


def listed(sheet: Sheet, column: Column, most: int) -> Iterator[Draft | None]:
    """Write up to ``most`` items behind dashes."""
    gap_px = sheet.rng.uniform(GAP_PX, sheet.gap_px)
    while most > 0 and sheet.writer.left > 0:
        yield column.item(sheet.writer.sentence(2, 8), sheet.body)
        column.skip(gap_px)
        most -= 1


def texts(sheet: Sheet, column: Column, most: int = 3) -> Iterator[Draft | None]:
    """Write up to ``most`` paragraphs, now and then with a sub-title above and an equation below."""
    if sheet.writer.left > 0 and column.room > 3 * sheet.body.pitch_px and sheet.rng.random() < 0.3:
        yield sheet.sub_heading(column)
        sheet.gap(column)
    for _ in range(sheet.rng.randint(1, most)):
        if sheet.writer.left > 0:
            yield sheet.paragraph(column)
            sheet.gap(column)
    if sheet.writer.left > 0 and sheet.rng.random() < 0.2:
        yield sheet.formula(column)
        sheet.gap(column)
