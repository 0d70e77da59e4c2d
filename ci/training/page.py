"""A page with its truth: the blocks on it, and the output that a model should have."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END, UNITS


class Rect(NamedTuple):
    """Left, top, right and bottom in pixels of the page, fractions allowed."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Word:
    """A text without a space, and the pixels that its ink covers."""

    text: str
    rect: Rect


@dataclass(frozen=True)
class Block:
    """A part of the page under one of the vendor's labels.

    ``text`` is its text in the output, with markup. ``words`` are those on the page, in the order of ``text``.
    """

    label: str
    rects: tuple[Rect, ...]
    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True, eq=False)
class Page:
    """An RGB image, and its blocks in reading order."""

    kind: str
    image: Image.Image
    blocks: tuple[Block, ...]

    @classmethod
    def load(cls, path: Path) -> "Page":
        """Read a shipped page; a JSON file of the same name has its truth."""
        truth = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        blocks = (
            Block(
                one["label"],
                tuple(Rect(*rect) for rect in one["rects"]),
                one["text"],
                tuple(Word(word["text"], Rect(*word["rect"])) for word in one["words"]),
            )
            for one in truth["blocks"]
        )
        return cls(truth["kind"], load_image(path), tuple(blocks))

    def output(self, *, grounded: bool) -> str:
        """Return the right output: of the markdown prompt if ``grounded``, else of free OCR."""
        parts = self._grounded() if grounded else (block.text for block in self.blocks if block.text)
        return "\n\n".join(parts)

    def _grounded(self) -> Iterator[str]:
        width, height = self.image.size
        for block in self.blocks:
            boxes = [
                [min(max(round(v / side * UNITS), 0), UNITS) for v, side in zip(rect, (width, height) * 2, strict=True)]
                for rect in block.rects
            ]
            span = f"{REF}{block.label}{REF_END}{DET}{boxes}{DET_END}"
            yield f"{span}\n{block.text}" if block.text else span
