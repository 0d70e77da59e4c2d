"""A maker of pages: reportlab typesets them, PDFium rasterises them, and says where each word went.

The same seed gives the same bytes. The text is random words, so that a model must read. Lengths are in points, from the
top left corner of the sheet.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from random import Random
from typing import Any

import pypdfium2
from PIL import Image, ImageChops
from reportlab.graphics.shapes import Circle, Drawing
from reportlab.graphics.shapes import Rect as Box
from reportlab.lib.colors import HexColor
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, Table

from ci.training.rows import Block, Page, Rect, Word
from pytest_dsocr.foundation.errors import DsocrError

SIZES_PT = {"tall": (595.0, 842.0), "wide": (842.0, 595.0), "square": (600.0, 600.0), "strip": (295.0, 850.0)}
FONTS = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold", "Courier": "Courier-Bold"}
"""Each with its bold face."""
INKS, PAPERS = ("#000000", "#1a1a1a", "#10203c", "#333333"), ("#ffffff", "#ffffff", "#f7f3e8")
TINTS = ("#c0504d", "#4f81bd", "#9bbb59", "#8064a2", "#f79646", "#7f7f7f")
SCALES = {"title": 1.8, "sub_title": 1.35, "text": 1.0, "equation": 1.0}
"""Sizes of type by label, in units of the body's; anything else is small print."""
SMALL, LEADING = 0.88, 1.45
ANSWERS = {
    "title": "# {}",
    "sub_title": "## {}",
    "image_caption": "<center>{}</center>",
    "table_caption": "<center>{}</center>",
    "equation": r"\[ {} \]",
}
"""What the answer makes of a text, by label."""
MARGIN_PT, GUTTER_PT, EDGE_PT = 50, 30, 44
INK_LEVELS, SLACK_PT, PADDING_PX = 24, 1.5, 4
"""A pixel whose level differs by more than this from the paper is ink; ink may extend beyond its frame by the slack."""


def typeset(seed: int, words: Sequence[str]) -> Page:
    """Set the page of ``seed`` with these words; a ``DsocrError`` where PDFium reads something else than was set."""
    random = Random(seed)
    kind = random.choice([*SIZES_PT])
    columns = 2 if kind in ("tall", "wide") and random.random() < 0.4 else 1
    sheet = Sheet(random, words, SIZES_PT[kind])
    top = float(MARGIN_PT)
    if random.random() < 0.5:
        sheet.text("header", sheet.phrase(2), EDGE_PT / 2, align=1)
    if random.random() < 0.7:
        top = sheet.text("title", sheet.phrase(3), top, align=random.choice((0, 1))) + 18
    width = (sheet.width_pt - 2 * MARGIN_PT - GUTTER_PT * (columns - 1)) / columns
    for column in range(columns):
        sheet.fill(Frame(MARGIN_PT + column * (width + GUTTER_PT), width, top))
    if random.random() < 0.5:
        number = str(random.randint(1, 99))
        sheet.text(random.choice(("footer", "page_number")), number, sheet.height_pt - EDGE_PT, align=1)
    return sheet.page(kind, seed)


@dataclass
class Frame:
    """A column of the sheet, filled from ``top`` downwards."""

    left: float
    width: float
    top: float


@dataclass
class Sheet:
    """A page being set; blocks are read in the order in which they are put on it."""

    random: Random
    words: Sequence[str]
    size_pt: tuple[float, float]
    blocks: list[tuple[str, str, str, Rect]] = field(default_factory=list)
    """Label, answer, the words on the page with spaces between, and the frame."""

    def __post_init__(self) -> None:
        choose = self.random.choice
        self.width_pt, self.height_pt = self.size_pt
        self.font, self.ink, self.paper = choose([*FONTS]), HexColor(choose(INKS)), choose(PAPERS)
        self.body_pt = self.random.uniform(15, 20)
        self.file = BytesIO()
        self.canvas = Canvas(self.file, pagesize=self.size_pt, invariant=1)
        self.canvas.setFillColor(HexColor(self.paper))
        self.canvas.rect(0, 0, *self.size_pt, stroke=0, fill=1)

    def phrase(self, most: int) -> str:
        """Return one to ``most`` capitalised words."""
        return " ".join(self.random.choice(self.words).capitalize() for _ in range(self.random.randint(1, most)))

    def sentence(self) -> str:
        """Return a sentence, now and then with a number in it."""
        words = [self.random.choice(self.words) for _ in range(self.random.randint(4, 9))]
        if self.random.random() < 0.3:
            words[self.random.randrange(1, len(words) - 1)] = str(self.random.randint(1, 99))
        return f"{words[0].capitalize()} {' '.join(words[1:])}."

    def fill(self, frame: Frame) -> None:
        """Put random blocks into a column until the sheet's foot, or until enough is said."""
        for _ in range(self.random.randint(2, 6)):
            room = self.height_pt - EDGE_PT - MARGIN_PT - frame.top
            if room < 120:
                return
            put = self.random.choices((self._prose, self._table, self._figure, self._section), (5, 2, 2, 2))[0]
            put(frame, room)
            frame.top += self.random.uniform(10, 26)

    def text(self, label: str, printed: str, top: float, *, frame: Frame | None = None, align: int = 0) -> float:
        """Set a paragraph in the type of its label (``align`` as reportlab's); return where it ends."""
        frame = frame or Frame(MARGIN_PT, self.width_pt - 2 * MARGIN_PT, top)
        size_pt = SCALES.get(label, SMALL) * self.body_pt
        style = ParagraphStyle(
            label,
            fontName=FONTS[self.font] if label in ("title", "sub_title") else self.font,
            fontSize=size_pt,
            leading=LEADING * size_pt,
            textColor=self.ink,
            alignment=align,
        )
        placed = self._draw(Paragraph(printed, style), frame.left, top, frame.width)
        self.blocks.append((label, ANSWERS.get(label, "{}").format(printed), printed, placed))
        return placed.y2

    def _prose(self, frame: Frame, room: float) -> None:
        most = min(4, int(room / (4 * LEADING * self.body_pt)))
        printed = " ".join(self.sentence() for _ in range(self.random.randint(1, max(most, 1))))
        if self.random.random() < 0.2:
            printed = f"- {printed}"
        frame.top = self.text("text", printed, frame.top, frame=frame)

    def _section(self, frame: Frame, room: float) -> None:
        if self.random.random() < 0.3:
            terms = [self.random.choice("abcdefghkmnpqrstuvwxyz"), str(self.random.randint(1, 99))]
            printed = f"{terms[0]} = {terms[1]}"
            frame.top = self.text("equation", printed, frame.top, frame=frame, align=1)
        else:
            frame.top = self.text("sub_title", self.phrase(2), frame.top, frame=frame)

    def _table(self, frame: Frame, room: float) -> None:
        columns = self.random.randint(2, 3)
        many = min(self.random.randint(2, 5), int((room - 40) / (1.9 * self.body_pt)))
        head = [self.random.choice(self.words).capitalize() for _ in range(columns)]
        numbers = [[str(self.random.randint(1, 999)) for _ in range(columns - 1)] for _ in range(many - 1)]
        rows = [head, *([self.random.choice(self.words).capitalize(), *row] for row in numbers)]
        frame.top = self._caption("table_caption", "Table", frame) + 6
        last = (-1, -1)
        style: list[tuple[Any, ...]] = [
            ("FONT", (0, 0), last, self.font, 0.8 * self.body_pt),
            ("TEXTCOLOR", (0, 0), last, self.ink),
            ("VALIGN", (0, 0), last, "MIDDLE"),
            ("GRID", (0, 0), last, 1, self.ink),
        ]
        table = Table(rows, frame.width / columns, 1.9 * self.body_pt, style=style)
        placed = self._draw(table, frame.left, frame.top, frame.width)
        cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
        printed = " ".join(cell for row in rows for cell in row)
        self.blocks.append(("table", f"<table>{cells}</table>", printed, placed))
        frame.top = placed.y2

    def _figure(self, frame: Frame, room: float) -> None:
        width, height = 0.8 * frame.width, min(self.random.uniform(70, 160), room - 40)
        drawing = Drawing(width, height)
        drawing.add(Box(0, 0, width, height, fillColor=HexColor("#ece6d8"), strokeColor=self.ink, strokeWidth=2))
        for _ in range(self.random.randint(3, 6)):
            radius = height * self.random.uniform(0.1, 0.25)
            x, y = (self.random.uniform(radius, side - radius) for side in (width, height))
            fill = HexColor(self.random.choice(TINTS))
            drawing.add(Circle(x, y, radius, fillColor=fill, strokeColor=None))
        placed = self._draw(drawing, frame.left + 0.1 * frame.width, frame.top, width)
        self.blocks.append(("image", "", "", placed))
        frame.top = placed.y2 + 8
        frame.top = self._caption("image_caption", "Figure", frame)

    def _caption(self, label: str, what: str, frame: Frame) -> float:
        printed = f"{what} {self.random.randint(1, 9)}: {self.phrase(2)}"
        return self.text(label, printed, frame.top, frame=frame, align=1)

    def _draw(self, flowable: Any, left: float, top: float, width: float) -> Rect:
        width, height = flowable.wrap(width, self.height_pt)
        flowable.drawOn(self.canvas, left, self.height_pt - top - height)
        return Rect(left, top, left + width, top + height)

    def page(self, kind: str, seed: int) -> Page:
        """Rasterise the sheet, and measure how far the ink of its words and blocks reaches."""
        self.canvas.save()
        scale = self.random.uniform(1.8, 2.2)
        document = pypdfium2.PdfDocument(self.file.getvalue())
        try:
            image = document[0].render(scale=scale).to_pil().convert("RGB")
            characters = _characters(document[0].get_textpage(), self.height_pt)
            difference = ImageChops.difference(image, Image.new("RGB", image.size, self.paper)).convert("L")
            ink = difference.point([255 * (level > INK_LEVELS) for level in range(256)])
            blocks = []
            for label, answer, printed, frame in self.blocks:
                words = tuple(Word(one, _ink(ink, _frame(one, characters), scale)) for one in printed.split())
                x1, y1, x2, y2 = _ink(ink, frame, scale)
                padded = (x1 - PADDING_PX, y1 - PADDING_PX, x2 + PADDING_PX, y2 + PADDING_PX)
                sides = zip(padded, image.size * 2, strict=True)
                blocks.append(Block(label, (Rect(*(min(max(v, 0), side) for v, side in sides)),), answer, words))
        finally:
            document.close()
        return Page(kind, seed, image, tuple(blocks))


def _ink(ink: Image.Image, frame: Rect, scale: float) -> Rect:
    """Return the bounds in pixels of the ink in a frame in points, or just outside it."""
    x1, y1 = (int((side - SLACK_PT) * scale) for side in frame[:2])
    x2, y2 = (int((side + SLACK_PT) * scale) + 1 for side in frame[2:])
    bounds = ink.crop((x1, y1, x2, y2)).getbbox()
    if bounds is None:
        raise DsocrError(f"nothing is drawn in {tuple(frame)} pt of the sheet; set it inside the page")
    return Rect(x1 + bounds[0], y1 + bounds[1], x1 + bounds[2], y1 + bounds[3])


def _characters(text_page: Any, height_pt: float) -> Iterator[tuple[str, Rect]]:
    """Yield the characters that PDFium reads, in the order of drawing, with their frames; no spaces."""
    for index in range(text_page.count_chars()):
        character = text_page.get_text_range(index, 1)
        if not character.isspace():
            left, bottom, right, top = text_page.get_charbox(index)
            yield character, Rect(left, height_pt - top, right, height_pt - bottom)


def _frame(word: str, characters: Iterator[tuple[str, Rect]]) -> Rect:
    """Take the characters of ``word`` from those that PDFium reads; return the frame around them."""
    read, frames = zip(*(next(characters, ("", Rect(0, 0, 0, 0))) for _ in word), strict=True)
    if "".join(read) != word:
        raise DsocrError(f"PDFium reads {''.join(read)!r} where {word!r} was set; use another version of pypdfium2")
    lefts, tops, rights, bottoms = zip(*frames, strict=True)
    return Rect(min(lefts), min(tops), max(rights), max(bottoms))
