"""The kinds of typeset pages, each the setting of its blocks from the top down. Lengths are in points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from random import Random

from ci.training.page import Page
from ci.training.prose import Writer
from ci.training.typeset import Setting
from ci.training.typeset.drawings import Picture, bars, discs, landscape
from ci.training.typeset.sheet import Column, Sheet, Style

MARGIN = 56
GUTTER = 32
BUDGET = 100
"""What a writer is told to spend; nothing here ends early."""


def set_page(setting: Setting) -> Page:
    """Set a page and rasterise it."""
    sheet = Sheet(*setting.size_pt, Style(setting.font, setting.body_pt, setting.ink, setting.paper))
    KINDS[setting.kind](sheet, Writer(Random(setting.seed), BUDGET))
    return sheet.page(setting.kind, setting.seed, setting.dpi)


def _article(sheet: Sheet, writer: Writer) -> None:
    _edge(sheet, 30, "header", _name(writer, 2))
    column = _whole(sheet, 84)
    column.text("title", _name(writer, 3), gap=20)
    column.text("text", _prose(writer, 4), gap=22)
    column.text("sub_title", _name(writer, 2))
    column.text("text", _prose(writer, 4), gap=22)
    column.text("equation", " ".join(writer.equation()), align="center", gap=22)
    column.text("text", _prose(writer, 3))
    _edge(sheet, sheet.height_pt - 50, "page_number", writer.number())


def _two_columns(sheet: Sheet, writer: Writer) -> None:
    top = _whole(sheet, 46).text("title", _name(writer, 3), align="center", gap=24)
    left, right = _halves(sheet, top)
    left.text("sub_title", _name(writer, 2))
    left.text("text", _prose(writer, 4), gap=22)
    _figure(left, writer, discs, 120)
    left.text_over(right, lines=4, printed=_prose(writer, 4), gap=26)
    right.text("sub_title", _name(writer, 1))
    right.text("text", _prose(writer, 3))
    _edge(sheet, sheet.height_pt - 46, "page_number", writer.number())


def _letter(sheet: Sheet, writer: Writer) -> None:
    column = _whole(sheet, 64)
    column.text("text", _name(writer, 3), align="right", gap=8)
    column.text("text", _date(writer), align="right", gap=48)
    column.text("text", f"Dear {_name(writer, 2)},", gap=18)
    column.text("text", _prose(writer, 5), gap=18)
    column.text("text", _prose(writer, 3), gap=18)
    column.text("text", _prose(writer, 2), gap=46)
    column.text("text", f"Yours {_name(writer, 2)}")


def _invoice(sheet: Sheet, writer: Writer) -> None:
    column = _whole(sheet, 60)
    column.text("title", f"Invoice {writer.number()}", gap=24)
    column.text("text", f"Client: {_name(writer, 2)}", gap=10)
    column.text("text", _date(writer), gap=28)
    column.text("table_caption", _caption(writer, "Table"), gap=14)
    column.table(_rows(writer, 6, ("Item", "Number", "Price")), gap=20)
    column.text("text", f"Total: ${writer.amount().lstrip('$')}", align="right", gap=32)
    column.text("text", _prose(writer, 3))
    _edge(sheet, sheet.height_pt - 50, "footer", _name(writer, 3))


def _slide(sheet: Sheet, writer: Writer) -> None:
    top = _whole(sheet, 44).text("title", _name(writer, 3), gap=36)
    left, right = _halves(sheet, top)
    left.text("text", _prose(writer, 2), gap=24)
    for _ in range(4):
        left.text("text", _item(writer), gap=18)
    _figure(right, writer, bars, 200)
    _edge(sheet, sheet.height_pt - 44, "page_number", writer.number())


def _figures(sheet: Sheet, writer: Writer) -> None:
    column = _whole(sheet, 56)
    column.text("sub_title", _name(writer, 3), gap=18)
    column.text("text", _prose(writer, 4), gap=26)
    _figure(column, writer, landscape, 170)
    _figure(column, writer, discs, 140)
    column.text("text", _prose(writer, 2))
    _edge(sheet, sheet.height_pt - 46, "page_number", writer.number())


def _list(sheet: Sheet, writer: Writer) -> None:
    column = _whole(sheet, 50)
    column.text("title", _name(writer, 2), gap=26)
    column.text("text", _prose(writer, 2), gap=22)
    for _ in range(5):
        column.text("text", _item(writer), gap=14)
    column.text("text", _prose(writer, 1))


def _receipt(sheet: Sheet, writer: Writer) -> None:
    column = sheet.column(30, 70, sheet.width_pt - 60)
    column.text("title", _name(writer, 1), align="center", gap=28)
    column.text("text", f"{_name(writer, 1)} {writer.number()}", align="center", gap=10)
    column.text("text", _date(writer), align="center", gap=36)
    column.table(_rows(writer, 6, ("Item", "Price")), ruled=False, gap=32)
    column.text("text", f"Total: ${writer.amount().lstrip('$')}", align="right", gap=60)
    column.text("text", _prose(writer, 4), align="center")


def _whole(sheet: Sheet, top: float) -> Column:
    return sheet.column(MARGIN, top, sheet.width_pt - 2 * MARGIN)


def _halves(sheet: Sheet, above: Column) -> tuple[Column, Column]:
    width = (above.width - GUTTER) / 2
    left, right = (above.left + n * (width + GUTTER) for n in range(2))
    return sheet.column(left, above.top, width), sheet.column(right, above.top, width)


def _edge(sheet: Sheet, top: float, label: str, printed: str) -> None:
    _whole(sheet, top).text(label, printed, align="center")


def _figure(column: Column, writer: Writer, picture: Picture, height: float) -> None:
    column.picture(picture(writer.rng, 0.8 * column.width, height), gap=12)
    column.text("image_caption", _caption(writer, "Figure"), align="center", gap=26)


def _caption(writer: Writer, what: str) -> str:
    return f"{what} {writer.rng.randint(1, 9)}: {' '.join(writer.words(3)).capitalize()}"


def _item(writer: Writer) -> str:
    return f"- {' '.join(writer.words(4)).capitalize()}"


def _name(writer: Writer, words: int) -> str:
    return " ".join(writer.capitalised(words, words))


def _date(writer: Writer) -> str:
    return f"Date: {' '.join(writer.date())}"


def _prose(writer: Writer, sentences: int) -> str:
    return " ".join(chain.from_iterable(writer.sentence() for _ in range(sentences)))


def _rows(writer: Writer, rows: int, head: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Give a row of headings, then names, numbers and, in the last column, amounts."""
    numbers = len(head) - 2
    body = [(_name(writer, 1), *(writer.number() for _ in range(numbers)), writer.amount()) for _ in range(rows - 1)]
    return [head, *body]


KINDS: Mapping[str, Callable[[Sheet, Writer], None]] = {
    "article": _article,
    "two columns": _two_columns,
    "letter": _letter,
    "invoice": _invoice,
    "slide": _slide,
    "figures": _figures,
    "list": _list,
    "receipt": _receipt,
}
