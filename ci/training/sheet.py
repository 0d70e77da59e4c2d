"""A page while it is being written: its look, its margins, and what any kind of page may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from ci.training.canvas import Canvas, Draft
from ci.training.column import Column
from ci.training.pictures import draw_picture
from ci.training.prose import Writer
from ci.training.table import draw_table
from ci.training.typography import Align, Colour, Style

GAP_PX = 40
"""Between blocks, at crop scale: enough that their boxes stay apart when the page is tilted."""
GUTTER_PX = 64
INKS: tuple[Colour, ...] = ((0, 0, 0), (24, 24, 28), (48, 48, 48), (66, 62, 58), (16, 28, 84), (30, 50, 96))
ACCENTS: tuple[Colour, ...] = ((20, 40, 110), (110, 24, 24), (20, 80, 50), (70, 40, 100), (0, 80, 100))


class Sheet:
    """One page's canvas, styles and writer. ``largeness`` makes the body text larger than on a full page."""

    def __init__(self, canvas: Canvas, rng: Random, budget: int, largeness: float = 1.0) -> None:
        self.canvas, self.rng = canvas, rng
        self.writer = Writer(rng, budget)
        self._make_styles(largeness)
        self._make_margins()

    def _make_styles(self, largeness: float) -> None:
        rng = self.rng
        narrow = self.canvas.width_px <= 640
        em_px = rng.uniform(34, 40 if narrow else 48) * largeness
        self.body = Style(
            em_px,
            max(em_px * rng.uniform(1.35, 1.6), 54),
            rng.choice(INKS),
            tracking=rng.choice((0.0, 0.0, 0.0, 0.04, 0.08)),
            space=rng.uniform(0.32, 0.5),
            width=rng.choice((0.9, 1.0, 1.0, 1.1)),
        )
        title_px = max(rng.uniform(60, 72 if narrow else 96), 1.3 * em_px)
        strong = rng.choice((self.body.ink, rng.choice(ACCENTS)))
        self.title = self._sized(title_px, bold=rng.random() < 0.7, ink=strong)
        self.sub_title = self._sized(min(0.8 * title_px, max(48, 1.15 * em_px)), bold=True, ink=strong)
        self.small = self._sized(rng.uniform(32, 36), slant=rng.random() < 0.4)
        self.cell = self._sized(rng.uniform(34, 42))
        self.equation = self._sized(rng.uniform(44, 56), space=rng.uniform(0.9, 1.2), slant=rng.random() < 0.3)
        self.align: Align = rng.choice(("left", "left", "left", "justify"))
        self.title_align: Align = rng.choice(("left", "left", "center"))

    def _sized(
        self, em_px: float, *, bold: bool = False, slant: bool = False, ink: Colour | None = None, space: float = 0.4
    ) -> Style:
        return replace(
            self.body, em_px=em_px, pitch_px=em_px * 1.45, bold=bold, slant=slant, ink=ink or self.body.ink, space=space
        )

    def _make_margins(self) -> None:
        rng, width, height = self.rng, self.canvas.width_px, self.canvas.height_px
        left, right = (rng.uniform(32, 0.11 * width) for _ in range(2))
        self.page = Column(self.canvas, left, rng.uniform(36, 70), width - right, height - rng.uniform(36, 70))
        self.gap_px = rng.uniform(GAP_PX, GAP_PX + 0.05 * height)

    def body_column(self) -> Column:
        """Give the column between header and footer, begun at some height of a page."""
        edge = 1.5 * self.small.pitch_px
        column = Column(self.canvas, self.page.left, self.page.top + edge, self.page.right, self.page.bottom - edge)
        column.skip(self.rng.uniform(0, 0.2) * column.room)
        return column

    def gap(self, column: Column) -> None:
        """Leave room below a block."""
        column.skip(self.rng.uniform(GAP_PX, self.gap_px))

    def header(self) -> Draft | None:
        """Write a header at the page's upper edge, or not."""
        if self.rng.random() < 0.6:
            return None
        words = self.writer.capitalised(1, 2)
        return Column(*self._edge(self.page.top)).text("header", words, self.small, self.rng.choice(("left", "right")))

    def footer(self) -> Iterator[Draft | None]:
        """Write a footer and a page number at the lower edge, or one of them, or neither."""
        top = self.page.bottom - self.small.pitch_px
        align: Align = self.rng.choice(("center", "right"))
        if self.rng.random() < 0.25:
            align = "right"
            column = Column(*self._edge(top)).inset(0, 0.4 * self.page.width)
            yield column.text("footer", self.writer.capitalised(1, 2), self.small)
        if self.rng.random() < 0.6:
            words = [*self.rng.choice(((), (), ("Page",))), str(self.rng.randint(1, 99))]
            yield Column(*self._edge(top)).text("page_number", words, self.small, align)

    def heading(self, column: Column, *, fewest: int = 1, most: int = 4) -> Draft | None:
        """Write a title."""
        return self.heading_of(column, self.writer.capitalised(fewest, most))

    def heading_of(self, column: Column, words: list[str]) -> Draft | None:
        """Write ``words`` as a title."""
        return column.text("title", words, self._fitted(self.title, column), self.title_align, form="# {}")

    def sub_heading(self, column: Column) -> Draft | None:
        """Write a sub-title."""
        style = self._fitted(self.sub_title, column)
        return column.text("sub_title", self.writer.capitalised(1, 3), style, self.title_align, form="## {}")

    def paragraph(self, column: Column, most: int = 4) -> Draft | None:
        """Write some sentences."""
        return column.paragraph(self.writer.sentences(most), self.body, self.align)

    def formula(self, column: Column) -> Draft | None:
        """Write an equation in the middle; None where it is too long for one line."""
        words = self.writer.equation()
        if len(column.broken(words, self.equation)) > 1:
            return None
        return column.text("equation", words, self.equation, "center", form=r"\[ {} \]")

    def picture(self, column: Column, width_px: float, height_px: float) -> Draft | None:
        """Draw a picture in the middle."""
        return column.picture(draw_picture(self.rng), width_px, height_px)

    def caption(self, column: Column, name: str, number: int) -> Draft | None:
        """Write ``Figure 3: ...`` or ``Table 3: ...``."""
        label = {"Figure": "image_caption", "Table": "table_caption"}[name]
        words = [name, f"{number}:", *self.writer.capitalised(1, 1), *self.writer.words(self.rng.randint(1, 3))]
        return column.text(label, words, self.small, self.title_align, form="<center>{}</center>")

    def table(self, column: Column, rows: int, columns: int) -> Draft | None:
        """Draw a table of words and numbers."""
        return draw_table(column, self.writer.rows(rows, columns), self.cell, self.rng)

    def bill(self, column: Column, rows: int) -> Draft | None:
        """Draw a table of things and their prices."""
        return draw_table(column, self.writer.bill(rows), self.cell, self.rng)

    def _fitted(self, style: Style, column: Column) -> Style:
        em_px = min(style.em_px, column.width / 6.5)
        return replace(style, em_px=em_px, pitch_px=em_px * 1.4)

    def _edge(self, top: float) -> tuple[Canvas, float, float, float, float]:
        return self.canvas, self.page.left, top, self.page.right, top + self.small.pitch_px + 1
