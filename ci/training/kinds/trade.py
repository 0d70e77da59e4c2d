"""Papers of trade: invoices, receipts and forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ci.training.canvas import Draft
from ci.training.column import Column
from ci.training.kinds.parts import texts
from ci.training.page import Rect
from ci.training.sheet import GAP_PX, GUTTER_PX, Sheet

PALE_INK = (205, 205, 205)


def invoice(sheet: Sheet) -> Iterator[Draft | None]:
    """Write whom to, when, a table of things and their prices, and the sum."""
    column, writer = sheet.body_column(), sheet.writer
    yield sheet.heading_of(column, ["Invoice", writer.number()])
    sheet.gap(column)
    left, right = column.split(2, GUTTER_PX)
    yield left.lines("text", writer.address(), sheet.body)
    yield right.text("text", ["Date:", *writer.date()], sheet.body, sheet.rng.choice(("left", "right")))
    column.top = left.top
    sheet.gap(column)
    yield sheet.bill(column, sheet.rng.randint(2, 6))
    sheet.gap(column)
    yield column.text("text", ["Total:", writer.amount()], replace(sheet.body, bold=True), "right")
    sheet.gap(column)
    yield from texts(sheet, column)
    yield from sheet.footer()


def receipt(sheet: Sheet) -> Iterator[Draft | None]:
    """Write a shop's name, what was bought line by line, and the sum."""
    column, writer = sheet.body_column(), sheet.writer
    sheet.title_align = "center"
    yield sheet.heading(column, most=2)
    sheet.gap(column)
    yield column.lines("text", writer.address(), sheet.body, "center")
    sheet.gap(column)
    gap_px = sheet.rng.uniform(GAP_PX, sheet.gap_px)
    for _ in range(sheet.rng.randint(2, 7)):
        if writer.left > 0 and column.room > 4 * sheet.body.pitch_px:
            yield column.pair(writer.capitalised(1, 2), [writer.amount()], sheet.body)
            column.skip(gap_px)
    sheet.canvas.fill(Rect(column.left, column.top, column.right, column.top + 3), PALE_INK)
    column.skip(GAP_PX)
    yield column.pair(["Total:"], [writer.amount()], replace(sheet.body, bold=True))
    sheet.gap(column)
    if sheet.rng.random() < 0.6:
        yield column.text("text", writer.sentence(3, 5), sheet.body, "center")


def form(sheet: Sheet) -> Iterator[Draft | None]:
    """Write fields with what was filled in, in one column or in two, above pale lines."""
    yield sheet.header()
    column = sheet.body_column()
    yield sheet.heading(column, most=3)
    sheet.gap(column)
    for _ in range(sheet.rng.randint(1, 2)):
        if sheet.writer.left > 0:
            yield sheet.sub_heading(column)
            sheet.gap(column)
            yield from _fields(sheet, column, sheet.rng.randint(1, 2) if column.width > 640 else 1)
    yield from texts(sheet, column, most=2)
    yield from sheet.footer()


def _fields(sheet: Sheet, column: Column, columns: int) -> Iterator[Draft | None]:
    gap_px = sheet.rng.uniform(GAP_PX, sheet.gap_px)
    for _ in range(sheet.rng.randint(2, 4)):
        cells = column.split(columns, GUTTER_PX)
        for cell in cells:
            if sheet.writer.left > 0:
                yield cell.text("text", sheet.writer.field(), sheet.body)
                cell.skip(8)
                sheet.canvas.fill(Rect(cell.left, cell.top, cell.right, cell.top + 2), PALE_INK)
        column.top = max(cell.top for cell in cells)
        column.skip(gap_px)
