"""A page while it is written: its words, look and margins, and the parts that any kind of page may have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from ci.training.canvas import Align, Canvas, Colour, Style
from ci.training.column import Column, Draft, Lines
from ci.training.pictures import draw_picture

GAP_PX = 40
"""Between blocks: boxes stay apart when the page is tilted."""
GUTTER_PX, ROW_PX = 64, 90
INKS: tuple[Colour, ...] = ((0, 0, 0), (24, 24, 28), (48, 48, 48), (66, 62, 58), (16, 28, 84), (30, 50, 96))
ACCENTS: tuple[Colour, ...] = ((20, 40, 110), (110, 24, 24), (20, 80, 50), (70, 40, 100), (0, 80, 100))
FUNCTION_WORDS = ("the", "of", "and", "to", "in", "is", "for", "with", "from", "that")
LETTERS, CENTS = "abcdefghkmnpqrstuvwxyz", ("00", "25", "50", "75")
Drafts = Iterator[Draft | None]
"""Blocks of a page; None is one for which there was no room."""


class Writer:
    """A source of random words, of which ``left`` are still to be written. A sentence is always finished."""

    def __init__(self, rng: Random, words: Sequence[str], left: int) -> None:
        self.rng, self.left = rng, left
        self._all, self._short = words, [word for word in words if word in FUNCTION_WORDS] or words

    def words(self, count: int) -> list[str]:
        """Return words in lower case, one in eight a short function word."""
        self.left -= count
        return [self.rng.choice(self._short if self.rng.random() < 0.12 else self._all) for _ in range(count)]

    def names(self, fewest: int, most: int) -> list[str]:
        """Return some words, each with a capital."""
        return [word.capitalize() for word in self.words(self.rng.randint(fewest, most))]

    def sentence(self, fewest: int = 4, most: int = 9) -> list[str]:
        """Return a capital, words, now and then a number or a comma, and a full stop."""
        words = self.words(self.rng.randint(fewest, most))
        words[0] = words[0].capitalize()
        inner = self.rng.randrange(len(words))
        if 0 < inner < len(words) - 1 and self.rng.random() < 0.3:
            words[inner] = self.rng.choice((words[inner] + ",", self.number(), self.percentage()))
        words[-1] += "."
        return words

    def sentences(self, most: int) -> list[list[str]]:
        """Return one to ``most`` sentences, fewer if the words are spent."""
        written = [self.sentence()]
        while len(written) < most and self.left > 0 and self.rng.random() < 0.8:
            written.append(self.sentence())
        return written

    def number(self) -> str:
        """Return a number, mostly of one or two digits."""
        return str(self.rng.randint(1, 999 if self.rng.random() < 0.1 else 99))

    def percentage(self) -> str:
        """Return a percentage."""
        return f"{self.rng.randint(1, 99)}%"

    def amount(self) -> str:
        """Return an amount of money."""
        return f"{self.rng.choice(('', '$'))}{self.number()}.{self.rng.choice(CENTS)}"

    def date(self) -> list[str]:
        """Return a day and one word, rarely a month."""
        return [str(self.rng.randint(1, 31)), *self.names(1, 1)]

    def address(self) -> list[list[str]]:
        """Return a name, a street with its number, perhaps a town."""
        lines = [self.names(1, 2), [*self.names(1, 1), self.number()], self.names(1, 2)]
        return lines[: self.rng.randint(2, 3)]

    def field(self) -> list[str]:
        """Return a form's field and its value."""
        name = self.names(1, 1)[0]
        values = (lambda: self.names(1, 2), lambda: [self.number()], lambda: [self.amount()], self.date)
        return [f"{name}:", *self.rng.choice(values)()]

    def equation(self) -> list[str]:
        """Return the terms and signs of a short equation."""
        terms = [self.rng.choice(LETTERS) if self.rng.random() < 0.7 else self.number() for _ in range(4)]
        signs = [self.rng.choice("+-/") for _ in range(2)]
        self.left -= 5
        if self.rng.random() < 0.5:
            return [terms[0], signs[0], terms[1], "=", terms[2]]
        return [terms[0], signs[0], terms[1], signs[1], terms[2], "=", terms[3]]

    def rows(self, rows: int, columns: int, *, bill: bool = False) -> list[Lines]:
        """Return the cells of a table: headings, then a word or two and numbers; of a ``bill`` things and prices."""
        any_number = (self.number, self.amount, self.percentage)
        kinds = [self.number, self.amount] if bill else [self.rng.choice(any_number) for _ in range(columns - 1)]
        head: Lines = [self.names(1, 1) for _ in range(columns)]
        self.left -= (rows - 1) * (columns - 1)
        return [head, *([self.names(1, 2), *([kind()] for kind in kinds)] for _ in range(rows - 1))]


class Sheet:
    """The canvas, styles and writer of one page."""

    def __init__(self, canvas: Canvas, rng: Random, writer: Writer) -> None:
        self.canvas, self.rng, self.writer = canvas, rng, writer
        narrow = canvas.width_px <= 640
        em_px = rng.uniform(34, 40 if narrow else 48)
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
        left, right = (rng.uniform(32, 0.11 * canvas.width_px) for _ in range(2))
        edges = rng.uniform(36, 70), canvas.width_px - right, canvas.height_px - rng.uniform(36, 70)
        self.page = Column(canvas, left, *edges)
        self.gap_px = rng.uniform(GAP_PX, GAP_PX + 0.05 * canvas.height_px)

    def _sized(
        self, em_px: float, *, bold: bool = False, slant: bool = False, ink: Colour | None = None, space: float = 0.4
    ) -> Style:
        ink, pitch_px = ink or self.body.ink, em_px * 1.45
        return replace(self.body, em_px=em_px, pitch_px=pitch_px, bold=bold, slant=slant, ink=ink, space=space)

    def column(self) -> Column:
        """Return the column between header and footer. It starts at a random height."""
        edge = 1.5 * self.small.pitch_px
        column = Column(self.canvas, self.page.left, self.page.top + edge, self.page.right, self.page.bottom - edge)
        column.top += self.rng.uniform(0, 0.2) * column.room
        return column

    def spaced(self, column: Column, draft: Draft | None) -> Draft | None:
        """Leave a gap below a block."""
        column.top += self.rng.uniform(GAP_PX, self.gap_px)
        return draft

    def header(self) -> Drafts:
        """Write a header, or not."""
        if self.rng.random() >= 0.6:
            words = self.writer.names(1, 2)
            align: Align = self.rng.choice(("left", "right"))
            yield Column(*self._edge(self.page.top)).text("header", words, self.small, align)

    def footer(self) -> Drafts:
        """Write a footer and a page number, or one of them, or neither."""
        top = self.page.bottom - self.small.pitch_px
        align: Align = self.rng.choice(("center", "right"))
        if self.rng.random() < 0.25:
            align = "right"
            column = Column(*self._edge(top)).inset(0, 0.4 * self.page.width)
            yield column.text("footer", self.writer.names(1, 2), self.small)
        if self.rng.random() < 0.6:
            words = [*self.rng.choice(((), (), ("Page",))), str(self.rng.randint(1, 99))]
            yield Column(*self._edge(top)).text("page_number", words, self.small, align)

    def heading(self, column: Column, fewest: int = 1, most: int = 4, words: list[str] | None = None) -> Draft | None:
        """Write a title."""
        words = words or self.writer.names(fewest, most)
        style = self._fitted(self.title, column)
        return self.spaced(column, column.text("title", words, style, self.title_align, form="# {}"))

    def sub_heading(self, column: Column) -> Draft | None:
        """Write a sub-title."""
        style, words = self._fitted(self.sub_title, column), self.writer.names(1, 3)
        return self.spaced(column, column.text("sub_title", words, style, self.title_align, form="## {}"))

    def paragraph(self, column: Column, most: int = 4) -> Draft | None:
        """Write some sentences."""
        return self.spaced(column, column.paragraph(self.writer.sentences(most), self.body, self.align))

    def formula(self, column: Column) -> Draft | None:
        """Write an equation in the middle."""
        words = self.writer.equation()
        fits = len(column.broken(words, self.equation)) == 1
        draft = column.text("equation", words, self.equation, "center", form=r"\[ {} \]") if fits else None
        return self.spaced(column, draft)

    def caption(self, column: Column, name: str, label: str, number: int) -> Draft | None:
        """Write a caption such as ``Figure 3: ...``."""
        words = [name, f"{number}:", *self.writer.names(1, 1), *self.writer.words(self.rng.randint(1, 3))]
        return column.text(label, words, self.small, self.title_align, form="<center>{}</center>")

    def figure(self, column: Column, number: int) -> Drafts:
        """Draw a picture, mostly with its caption below."""
        width = column.width * self.rng.uniform(0.5, 1)
        height = min(width * self.rng.uniform(0.4, 0.75), 0.8 * column.room)
        picture = column.picture(draw_picture(self.rng), width, height)
        yield picture
        if picture and self.rng.random() < 0.85:
            column.top += GAP_PX
            yield self.caption(column, "Figure", "image_caption", number)

    def tabulation(self, column: Column, number: int) -> Drafts:
        """Draw a table with a caption above or below it, or with none."""
        place = self.rng.choice(("above", "below", "above", "below", "none"))
        rows, columns = self.rng.randint(2, 6), self.rng.randint(2, 4)
        if column.room < ROW_PX * (rows + 2):
            return
        if place == "above":
            yield self.caption(column, "Table", "table_caption", number)
            column.top += GAP_PX
        sizes = ((rows, columns), (2, 2))
        tables = (column.table(self.writer.rows(*size), self.cell, self.rng) for size in sizes)
        table = next((table for table in tables if table), None)
        yield table
        if table and place == "below":
            column.top += GAP_PX
            yield self.caption(column, "Table", "table_caption", number)

    def beside(self, column: Column) -> Drafts:
        """Draw a picture at the right, and a text that begins at its left and mostly continues below it."""
        width = column.width * self.rng.uniform(0.35, 0.5)
        height = self.rng.randint(2, 4) * self.body.pitch_px
        picture = column.inset(column.width - width).picture(draw_picture(self.rng), width, height)
        yield picture
        if picture:
            narrow = column.inset(0, width + 2 * GAP_PX)
            narrow.bottom = column.top + height
            column.top += height + GAP_PX
            yield narrow.run_on(self.writer.sentence(6) + self.writer.sentence(6), self.body, column)

    def listed(self, column: Column, most: int) -> Drafts:
        """Write up to ``most`` items behind dashes."""
        gap_px = self.rng.uniform(GAP_PX, self.gap_px)
        while most > 0 and self.writer.left > 0:
            yield column.item(self.writer.sentence(2, 8), self.body)
            column.top += gap_px
            most -= 1

    def texts(self, column: Column, most: int = 3) -> Drafts:
        """Write up to ``most`` paragraphs, now and then with a sub-title above and an equation below."""
        if self.writer.left > 0 and column.room > 3 * self.body.pitch_px and self.rng.random() < 0.3:
            yield self.sub_heading(column)
        for _ in range(self.rng.randint(1, most)):
            if self.writer.left > 0:
                yield self.paragraph(column)
        if self.writer.left > 0 and self.rng.random() < 0.2:
            yield self.formula(column)

    def _fitted(self, style: Style, column: Column) -> Style:
        em_px = min(style.em_px, column.width / 6.5)
        return replace(style, em_px=em_px, pitch_px=em_px * 1.4)

    def _edge(self, top: float) -> tuple[Canvas, float, float, float, float]:
        return self.canvas, self.page.left, top, self.page.right, top + self.small.pitch_px + 1
