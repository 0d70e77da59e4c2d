"""A page with its truth: what is where on it, and what a model should answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image

from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END, UNITS


class Rect(NamedTuple):
    """Left, top, right and bottom in pixels of the page, fractions allowed."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Word:
    """Something to read that has no space in it, and the pixels that its ink covers."""

    text: str
    rect: Rect


@dataclass(frozen=True)
class Block:
    """A part of the page under one of the vendor's labels.

    ``text`` is what the answer says of it: ``# `` in front of a title, a table as HTML, nothing for an image.
    ``words`` are those on the page, in the order of ``text``, each of which holds the next one's characters.
    """

    label: str
    rects: tuple[Rect, ...]
    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True, eq=False)
class Page:
    """An RGB image, and its blocks in reading order."""

    kind: str
    seed: int
    image: Image.Image
    blocks: tuple[Block, ...]

    def answer(self, *, grounded: bool) -> str:
        """Return what a model should say: to the markdown prompt if ``grounded``, else to that of free OCR."""
        if grounded:
            return "\n\n".join(self._grounded())
        return "\n\n".join(block.text for block in self.blocks if block.text)

    def _grounded(self) -> Iterator[str]:
        for block in self.blocks:
            boxes = [list(self.units(rect)) for rect in block.rects]
            span = f"{REF}{block.label}{REF_END}{DET}{boxes}{DET_END}"
            yield f"{span}\n{block.text}" if block.text else span

    def units(self, rect: Rect) -> tuple[int, int, int, int]:
        """Return ``rect`` in the model's coordinates, 0 to 999 over the page's width and height."""
        sides = (self.image.width, self.image.height) * 2
        x1, y1, x2, y2 = (min(max(round(v / side * UNITS), 0), UNITS) for v, side in zip(rect, sides, strict=True))
        return x1, y1, x2, y2
