"""A strip of a page, filled from its top with blocks; each is drawn whole, or not at all if there is no room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from random import Random

from PIL import Image

from ci.training.canvas import Align, Canvas, Colour, Style
from ci.training.page import Rect, Word

LEAST_PICTURE_PX, RULE_PX, CELL_PAD_PX = 90, 3.0, 18.0
WIDEST_SPACES = 2.5
"""Growth of a space above which a justified line stays ragged."""
TINTS: tuple[Colour, ...] = ((214, 224, 238), (226, 226, 226), (232, 224, 206), (216, 234, 220))
Lines = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Draft:
    """A block while the page is drawn: for each of its boxes, the rects of the ink in it."""

    label: str
    inks: tuple[tuple[Rect, ...], ...]
    text: str
    words: tuple[Word, ...] = ()

    @classmethod
    def of(cls, label: str, parts: Sequence[Sequence[Word]], form: str = "{}") -> Draft:
        """Make a block of the words of each of its boxes."""
        words = tuple(chain(*parts))
        inks = tuple(tuple(word.rect for word in part) for part in parts)
        return cls(label, inks, form.format(" ".join(word.text for word in words)), words)


class Column:
    """The part of a canvas between ``left`` and ``right``, used down to ``top``; in pixels of crops."""

    def __init__(self, canvas: Canvas, left: float, top: float, right: float, bottom: float) -> None:
        self.canvas = canvas
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

    @property
    def width(self) -> float:
        """The longest line."""
        return self.right - self.left

    @property
    def room(self) -> float:
        """The height that is left."""
        return self.bottom - self.top

    def split(self, count: int, gutter_px: float) -> list[Column]:
        """Cut the rest into columns side by side."""
        width = (self.width - gutter_px * (count - 1)) / count
        lefts = [self.left + n * (width + gutter_px) for n in range(count)]
        return [Column(self.canvas, left, self.top, left + width, self.bottom) for left in lefts]

    def inset(self, left_px: float, right_px: float = 0.0) -> Column:
        """Return a narrower column that begins at the same height."""
        return Column(self.canvas, self.left + left_px, self.top, self.right - right_px, self.bottom)

    def broken(self, words: Sequence[str], style: Style) -> list[list[str]]:
        """Break ``words`` into lines that are no longer than the column is wide."""
        lines: list[list[str]] = []
        pen_px = self.width + 1
        for word in words:
            advance_px = self.canvas.advance_px(word, style)
            if pen_px + advance_px > self.width:
                lines.append([])
                pen_px = 0.0
            lines[-1].append(word)
            pen_px += advance_px + style.space * style.em_px
        return lines

    def text(
        self, label: str, words: Sequence[str], style: Style, align: Align = "left", *, form: str = "{}"
    ) -> Draft | None:
        """Set ``words`` in lines; ``form`` is the markup of the output's text."""
        return self.lines(label, self.broken(words, style), style, align, form=form)

    def lines(self, label: str, lines: Lines, style: Style, align: Align = "left", *, form: str = "{}") -> Draft | None:
        """Set ``lines`` one below the other."""
        return Draft.of(label, [self._take(lines, style, align)], form) if self._fit(lines, style) else None

    def paragraph(self, sentences: Lines, style: Style, align: Align = "left") -> Draft | None:
        """Set as many of the ``sentences`` as there is room for."""
        drafts = (self.text("text", [*chain(*sentences[:n])], style, align) for n in range(len(sentences), 0, -1))
        return next((draft for draft in drafts if draft), None)

    def run_on(self, words: Sequence[str], style: Style, following: Column, align: Align = "left") -> Draft | None:
        """Set ``words`` here, and those for which there is no room in the ``following`` column."""
        lines = self.broken(words, style)[: max(int(self.room / style.pitch_px), 0)]
        rest = following.broken(words[sum(map(len, lines)) :], style)
        if not lines or not following._fit(rest, style):
            return None
        parts = self._take(lines, style, align), following._take(rest, style, align)
        return Draft.of("text", [part for part in parts if part])

    def item(self, words: Sequence[str], style: Style) -> Draft | None:
        """Set ``words`` after a dash."""
        body = self.inset(style.em_px)
        lines = body.broken(words, style)
        if not self._fit(lines, style):
            return None
        dash = self._set([["-"]], style, "left")
        draft = Draft.of("text", [(*dash, *body._take(lines, style, "left"))])
        self.top = body.top
        return draft

    def pair(self, left: Sequence[str], right: Sequence[str], style: Style) -> Draft | None:
        """Set a line with one part at the left and the other at the right."""
        lines = self.broken([*left, *right], style)
        if len(lines) > 1 or not self._fit(lines, style):
            return None
        words = tuple(self._set([left], style, "left"))
        return Draft.of("text", [(*words, *self._take([right], style, "right"))])

    def picture(self, image: Image.Image, width_px: float, height_px: float) -> Draft | None:
        """Place ``image`` in the middle."""
        if not LEAST_PICTURE_PX <= height_px <= self.room:
            return None
        left = self._start(width_px, "center")
        ink = self.canvas.place(image, Rect(left, self.top, left + width_px, self.top + height_px))
        self.top += height_px
        return Draft("image", ((ink,),), "")

    def table(self, rows: Sequence[Lines], style: Style, rng: Random) -> Draft | None:
        """Draw a table, each cell of which is a list of words."""
        bold = replace(style, bold=True)
        columns = zip(*rows, strict=True)
        widths = [max(self._length(words, bold) for words in cells) + 2 * CELL_PAD_PX for cells in columns]
        slack_px, row_px = self.width - sum(widths), style.em_px * rng.uniform(1.5, 2.1)
        if slack_px < 0 or row_px * len(rows) > self.room:
            return None
        extra_px = slack_px * rng.uniform(0, 1) / len(widths)
        left = self.left + (slack_px - extra_px * len(widths)) * rng.choice((0, 0.5))
        xs = [*accumulate((width + extra_px for width in widths), initial=left)]
        ys = [self.top + row_px * n for n in range(len(rows) + 1)]
        outline = self._rule(xs, ys, style.ink, rng)
        words = tuple(
            word
            for n, cells in enumerate(rows)
            for x, cell in zip(xs, cells, strict=False)
            for word in self._cell(cell, x + CELL_PAD_PX, ys[n], replace(style, bold=n == 0, pitch_px=row_px))
        )
        self.top = ys[-1]
        html = ("".join(f"<td>{' '.join(cell)}</td>" for cell in row) for row in rows)
        text = f"<table>{''.join(f'<tr>{row}</tr>' for row in html)}</table>"
        return Draft("table", ((outline,),), text, words)

    def _rule(self, xs: list[float], ys: list[float], ink: Colour, rng: Random) -> Rect:
        look, tint, half = rng.choice(("grid", "lines", "zebra")), rng.choice(TINTS), RULE_PX / 2
        if look == "zebra":
            for top, bottom in [*pairwise(ys)][::2]:
                self.canvas.fill(Rect(xs[0], top, xs[-1], bottom), tint)
        for y in ys if look == "grid" else (ys[0], ys[1], ys[-1]):
            self.canvas.fill(Rect(xs[0], y - half, xs[-1], y + half), ink)
        for x in xs if look == "grid" else []:
            self.canvas.fill(Rect(x - half, ys[0], x + half, ys[-1]), ink)
        return self.canvas.bounds(Rect(xs[0] - half, ys[0] - half, xs[-1] + half, ys[-1] + half))

    def _cell(self, words: Sequence[str], pen: float, top: float, style: Style) -> Iterator[Word]:
        for word in words:
            yield self.canvas.write(word, pen, top + style.baseline_px, style)
            pen += self.canvas.advance_px(word, style) + style.space * style.em_px

    def _length(self, words: Sequence[str], style: Style) -> float:
        return sum(self.canvas.advance_px(word, style) for word in words) + style.space * style.em_px * (len(words) - 1)

    def _fit(self, lines: Lines, style: Style) -> bool:
        return len(lines) * style.pitch_px <= self.room

    def _take(self, lines: Lines, style: Style, align: Align) -> tuple[Word, ...]:
        words = tuple(self._set(lines, style, align))
        self.top += len(lines) * style.pitch_px
        return words

    def _set(self, lines: Lines, style: Style, align: Align) -> Iterator[Word]:
        for n, line in enumerate(lines):
            justified = align == "justify" and n < len(lines) - 1 and len(line) > 1
            wide_px = self.width - self._length(line, style)
            space_px = style.space * style.em_px
            filling_px = space_px + wide_px / (len(line) - 1) if justified else space_px
            step_px = filling_px if filling_px < WIDEST_SPACES * space_px else space_px
            pen = self._start(self._length(line, style) + (step_px - space_px) * (len(line) - 1), align)
            for word in line:
                yield self.canvas.write(word, pen, self.top + n * style.pitch_px + style.baseline_px, style)
                pen += self.canvas.advance_px(word, style) + step_px

    def _start(self, width_px: float, align: Align) -> float:
        slack = self.width - width_px
        return self.left + {"center": slack / 2, "right": slack}.get(align, 0.0)
