"""A page that reportlab sets and pypdfium2 rasterises, with the truth of what went where.

Lengths are in points, from the top left corner of the sheet. Where a word is, PDFium's text extraction says; how far
its ink and a block's reaches is measured on the raster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import pypdfium2
from PIL import Image, ImageChops
from reportlab.lib.colors import HexColor
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, Table

from ci.training.canvas import union
from ci.training.generator import PAD_PX
from ci.training.page import Block, Page, Rect, Word
from pytest_dsocr.contract.presets import CROP_PX, crop_grid
from pytest_dsocr.foundation.errors import DsocrError

POINTS_PER_INCH = 72
INK_LEVELS = 24
"""What differs by more than this from the paper is ink."""
SLACK_PT = 1.5
"""Ink may stand out of its frame by as much: half a line's thickness, the softness of an edge."""

SCALES = {"title": 2.0, "sub_title": 1.35, "text": 1.0, "equation": 1.0}
"""Sizes of type by label, in units of the body's; anything else is small print."""
SMALL = 0.88
LEADING = 1.45
"""From line to line, in units of the type's size."""
BOLD = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold", "Courier": "Courier-Bold"}
ANSWERS = {
    "title": "# {}",
    "sub_title": "## {}",
    "image_caption": "<center>{}</center>",
    "table_caption": "<center>{}</center>",
    "equation": r"\[ {} \]",
}

Align = Literal["left", "center", "right"]
ALIGNMENTS: tuple[Align, ...] = ("left", "center", "right")
"""In the order of reportlab's numbers for them."""


@dataclass(frozen=True)
class Style:
    """How the whole sheet is set; colours are written ``#rrggbb``."""

    font: str
    body_pt: float
    ink: str
    paper: str


@dataclass(frozen=True)
class Put:
    """A block on the sheet: what a model should say of it, its words, and the frames that it was set in."""

    label: str
    text: str
    words: tuple[str, ...]
    frames: tuple[Rect, ...]


class Sheet:
    """A page being set; blocks are read in the order in which they are put on it."""

    def __init__(self, width_pt: float, height_pt: float, style: Style) -> None:
        self.width_pt, self.height_pt, self.style = width_pt, height_pt, style
        self._blocks: list[Put] = []
        self._file = BytesIO()
        self._canvas = Canvas(self._file, pagesize=(width_pt, height_pt), invariant=1)
        self._canvas.setFillColor(HexColor(style.paper))
        self._canvas.rect(0, 0, width_pt, height_pt, stroke=0, fill=1)

    def column(self, left: float, top: float, width: float) -> Column:
        """Give a column that is filled from ``top`` downwards."""
        return Column(self, left, top, width)

    def draw(self, flowable: Any, left: float, top: float, width: float) -> Rect:
        """Lay a flowable out in that width, draw it, and give its frame."""
        width, height = flowable.wrap(width, self.height_pt)
        flowable.drawOn(self._canvas, left, self.height_pt - top - height)
        return Rect(left, top, left + width, top + height)

    def put(self, label: str, text: str, printed: str, *frames: Rect) -> None:
        """Note what has been drawn as a block: its label, its answer, its words with spaces between, its frames."""
        self._blocks.append(Put(label, text, tuple(printed.split()), frames))

    def page(self, kind: str, seed: int, dpi: float) -> Page:
        """Rasterise the sheet and measure its blocks.

        Raises:
            DsocrError: where PDFium reads other characters than were set, or a block lies outside the page.
        """
        self._canvas.save()
        document = pypdfium2.PdfDocument(self._file.getvalue())
        try:
            pdf_page, scale = document[0], dpi / POINTS_PER_INCH
            image = pdf_page.render(scale=scale).to_pil().convert("RGB")
            characters = _characters(pdf_page.get_textpage(), self.height_pt)
            raster = _Raster(image, self.style.paper, scale)
            blocks = [_block(block, characters, raster) for block in self._blocks]
        finally:
            document.close()
        return Page(kind, seed, image, tuple(blocks))


@dataclass
class Column:
    """A column of a sheet; ``top`` is how far it has been filled."""

    sheet: Sheet
    left: float
    top: float
    width: float

    def text(self, label: str, printed: str, *, align: Align = "left", gap: float = 12) -> Column:
        """Set a paragraph in the type of its label, and leave a gap below it."""
        frame = self._draw(self._paragraph(label, printed, align), gap)
        self.sheet.put(label, ANSWERS.get(label, "{}").format(printed), printed, frame)
        return self

    def text_over(self, other: Column, *, lines: int, printed: str, gap: float = 12) -> None:
        """Set a paragraph of which the first lines stand in this column, and the rest in the other one."""
        paragraph = self._paragraph("text", printed, "left")
        first, rest = paragraph.split(self.width, lines * paragraph.style.leading)
        self.sheet.put("text", printed, printed, self._draw(first, gap), other._draw(rest, gap))

    def table(self, rows: Sequence[Sequence[str]], *, ruled: bool = True, gap: float = 14) -> None:
        """Set a table of the column's width, its first row bold, its last column to the right."""
        style, last = self.sheet.style, (-1, -1)
        ink = HexColor(style.ink)
        commands: list[tuple[Any, ...]] = [
            ("FONT", (0, 0), last, style.font, style.body_pt),
            ("FONT", (0, 0), (-1, 0), BOLD[style.font], style.body_pt),
            ("TEXTCOLOR", (0, 0), last, ink),
            ("ALIGN", (-1, 0), last, "RIGHT"),
            ("VALIGN", (0, 0), last, "MIDDLE"),
            ("GRID", (0, 0), last, 1, ink) if ruled else ("LINEABOVE", (0, 1), (-1, 1), 1.2, ink),
        ]
        frame = self._draw(Table(rows, self.width / len(rows[0]), 1.9 * style.body_pt, style=commands), gap)
        cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        self.sheet.put("table", f"<table>{cells}</table>", " ".join(cell for row in rows for cell in row), frame)

    def picture(self, drawing: Any, *, gap: float = 12) -> None:
        """Put a drawing in the middle of the column."""
        frame = self.sheet.draw(drawing, self.left + (self.width - drawing.width) / 2, self.top, drawing.width)
        self.top = frame.y2 + gap
        self.sheet.put("image", "", "", frame)

    def _paragraph(self, label: str, printed: str, align: Align) -> Any:
        style = self.sheet.style
        size_pt = SCALES.get(label, SMALL) * style.body_pt
        of_label = ParagraphStyle(
            label,
            fontName=BOLD[style.font] if label in ("title", "sub_title") else style.font,
            fontSize=size_pt,
            leading=LEADING * size_pt,
            textColor=HexColor(style.ink),
            alignment=ALIGNMENTS.index(align),
        )
        return Paragraph(printed, of_label)

    def _draw(self, flowable: Any, gap: float) -> Rect:
        frame = self.sheet.draw(flowable, self.left, self.top, self.width)
        self.top = frame.y2 + gap
        return frame


class _Raster:
    """The ink of a page, from frames in points to bounds in pixels."""

    def __init__(self, image: Image.Image, paper: str, scale: float) -> None:
        difference = ImageChops.difference(image, Image.new("RGB", image.size, paper))
        self._ink = difference.convert("L").point([255 * (level > INK_LEVELS) for level in range(256)])
        self._scale = scale
        crops = crop_grid(*image.size)
        self._padding = [PAD_PX * side / (CROP_PX * n) for side, n in zip(image.size, crops, strict=True)]

    def ink(self, frame: Rect) -> Rect:
        """Give the bounds of the ink in ``frame`` or just outside it."""
        x1, y1 = (int((side - SLACK_PT) * self._scale) for side in frame[:2])
        x2, y2 = (int((side + SLACK_PT) * self._scale) + 1 for side in frame[2:])
        bounds = self._ink.crop((x1, y1, x2, y2)).getbbox()
        if bounds is None:
            raise DsocrError(f"nothing is drawn in {tuple(frame)} pt of the sheet; set it inside the page")
        return Rect(x1 + bounds[0], y1 + bounds[1], x1 + bounds[2], y1 + bounds[3])

    def padded(self, frame: Rect) -> Rect:
        """Give the bounds of the ink with a block's padding, clipped to the page."""
        x1, y1, x2, y2 = self.ink(frame)
        (across, down), (width, height) = self._padding, self._ink.size
        return Rect(max(x1 - across, 0), max(y1 - down, 0), min(x2 + across, width), min(y2 + down, height))


def _block(block: Put, characters: Iterator[tuple[str, Rect]], raster: _Raster) -> Block:
    words = tuple(Word(word, raster.ink(_frame(word, characters))) for word in block.words)
    return Block(block.label, tuple(raster.padded(frame) for frame in block.frames), block.text, words)


def _characters(text_page: Any, height_pt: float) -> Iterator[tuple[str, Rect]]:
    """Yield the characters that PDFium reads, in the order of drawing, with their frames; no spaces."""
    for index in range(text_page.count_chars()):
        character = text_page.get_text_range(index, 1)
        if not character.isspace():
            left, bottom, right, top = text_page.get_charbox(index)
            yield character, Rect(left, height_pt - top, right, height_pt - bottom)


def _frame(word: str, characters: Iterator[tuple[str, Rect]]) -> Rect:
    """Take the characters of ``word`` from those that PDFium reads, and give the frame around them."""
    read, frames = zip(*(next(characters, ("", Rect(0, 0, 0, 0))) for _ in word), strict=True)
    if "".join(read) != word:
        raise DsocrError(f"PDFium reads {''.join(read)!r} where {word!r} was set; use another version of pypdfium2")
    return union(frames)
