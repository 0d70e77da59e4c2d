"""Kinds of pages: each a function that writes its blocks on a sheet, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ci.training.canvas import Draft
from ci.training.kinds.article import article, two_columns
from ci.training.kinds.letter import letter
from ci.training.kinds.listing import listing
from ci.training.kinds.note import note
from ci.training.kinds.plates import figures, tables
from ci.training.kinds.slide import slide
from ci.training.kinds.trade import form, invoice, receipt
from ci.training.sheet import Sheet
from pytest_dsocr.contract.presets import Grid

Blocks = Iterator[Draft | None]
"""What a kind writes; None stands for a block for which there was no room."""


class Kind(NamedTuple):
    """A kind of page, its share among the full ones, and the grids that it looks right on."""

    write: Callable[[Sheet], Blocks]
    share: int
    grids: tuple[Grid, ...]


TALL: tuple[Grid, ...] = ((1, 2), (1, 3), (2, 3))
WIDE: tuple[Grid, ...] = ((2, 2), (3, 2), (2, 1))

KINDS: dict[str, Kind] = {
    "article": Kind(article, 4, (*TALL, (2, 2))),
    "two columns": Kind(two_columns, 5, ((2, 3), (3, 2))),
    "letter": Kind(letter, 2, (*TALL, (2, 2))),
    "invoice": Kind(invoice, 3, ((2, 3), (2, 2))),
    "form": Kind(form, 2, (*TALL, (2, 2), (3, 2))),
    "tables": Kind(tables, 4, ((2, 3), (2, 2), (3, 2), (2, 1))),
    "figures": Kind(figures, 2, (*TALL, *WIDE, (1, 1))),
    "slide": Kind(slide, 4, WIDE),
    "receipt": Kind(receipt, 4, ((1, 2), (1, 3))),
    "list": Kind(listing, 2, (*TALL, *WIDE, (1, 1))),
    "note": Kind(note, 0, (*TALL, *WIDE, (1, 1))),
}
