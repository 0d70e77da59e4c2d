"""A strip of a page that is filled from its top with blocks, each of which is drawn whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from PIL import Image

from ci.training.canvas import Canvas, Draft
from ci.training.page import Rect, Word
from ci.training.typography import ASCENT, DESCENT, Align, Style, break_lines

LEAST_PICTURE_PX = 90
WIDEST_SPACES = 2.5
"""How much a space may grow before a justified line is rather left ragged."""
Lines = Sequence[Sequence[str]]


class Column:
    """The part of a canvas between ``left`` and ``right``, used down to ``top``; all in pixels at crop scale."""

    def __init__(self, canvas: Canvas, left: float, top: float, right: float, bottom: float) -> None:
        self.canvas = canvas
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

    @property
    def width(self) -> float:
        """The longest that a line can be."""
        return self.right - self.left

    @property
    def room(self) -> float:
        """How much of the height is left."""
        return self.bottom - self.top

    def skip(self, gap_px: float) -> None:
        """Leave a gap."""
        self.top += gap_px

    def split(self, count: int, gutter_px: float) -> list[Column]:
        """Cut what is left into ``count`` columns side by side."""
        width = (self.width - gutter_px * (count - 1)) / count
        lefts = [self.left + n * (width + gutter_px) for n in range(count)]
        return [Column(self.canvas, left, self.top, left + width, self.bottom) for left in lefts]

    def inset(self, left_px: float, right_px: float = 0.0) -> Column:
        """Give a narrower column that begins at the same height."""
        return Column(self.canvas, self.left + left_px, self.top, self.right - right_px, self.bottom)

    def broken(self, words: Sequence[str], style: Style) -> list[list[str]]:
        """Break ``words`` into lines as long as the column is wide."""
        rest = iter(words)
        counts = break_lines(words, self.width, lambda word: self._advance(word, style), style.space * style.em_px)
        return [[next(rest) for _ in range(count)] for count in counts]

    def text(
        self, label: str, words: Sequence[str], style: Style, align: Align = "left", *, form: str = "{}"
    ) -> Draft | None:
        """Set ``words`` in lines; None where there is no room for them. ``form`` is put around the answer's text."""
        return self.lines(label, self.broken(words, style), style, align, form=form)

    def lines(self, label: str, lines: Lines, style: Style, align: Align = "left", *, form: str = "{}") -> Draft | None:
        """Set ``lines`` one below the other; None where there is no room for them."""
        if not self._fit(lines, style):
            return None
        return drafted(label, [self._take(lines, style, align)], form)

    def paragraph(self, sentences: Lines, style: Style, align: Align = "left") -> Draft | None:
        """Set as many of the ``sentences`` as there is room for; None where that is none."""
        drafts = (self.text("text", list(chain(*sentences[:n])), style, align) for n in range(len(sentences), 0, -1))
        return next((draft for draft in drafts if draft), None)

    def run_on(self, words: Sequence[str], style: Style, following: Column, align: Align = "left") -> Draft | None:
        """Set ``words`` here and the rest of them in the ``following``; None where not all fit."""
        lines = self.broken(words, style)[: max(int(self.room / style.pitch_px), 0)]
        rest = following.broken(words[sum(map(len, lines)) :], style)
        if not lines or not following._fit(rest, style):
            return None
        parts = self._take(lines, style, align), following._take(rest, style, align)
        return drafted("text", [part for part in parts if part])

    def item(self, words: Sequence[str], style: Style) -> Draft | None:
        """Set ``words`` behind a dash."""
        body = self.inset(style.em_px)
        lines = body.broken(words, style)
        if not self._fit(lines, style):
            return None
        dash = self._set([["-"]], style, "left")
        draft = drafted("text", [(*dash, *body._take(lines, style, "left"))])
        self.top = body.top
        return draft

    def pair(self, left: Sequence[str], right: Sequence[str], style: Style) -> Draft | None:
        """Set a line of which one part is at the left and the other at the right; None where there is no room."""
        lines = self.broken([*left, *right], style)
        if len(lines) > 1 or not self._fit(lines, style):
            return None
        words = tuple(self._set([left], style, "left"))
        return drafted("text", [(*words, *self._take([right], style, "right"))])

    def picture(self, image: Image.Image, width_px: float, height_px: float) -> Draft | None:
        """Place ``image`` in the middle; None where there is no room for it, or it would be too flat to be seen."""
        if not LEAST_PICTURE_PX <= height_px <= self.room:
            return None
        left = self._start(width_px, "center")
        ink = self.canvas.place(image, Rect(left, self.top, left + width_px, self.top + height_px))
        self.skip(height_px)
        return Draft("image", ((ink,),), "", ())

    def _fit(self, lines: Lines, style: Style) -> bool:
        return len(lines) * style.pitch_px <= self.room

    def _take(self, lines: Lines, style: Style, align: Align) -> tuple[Word, ...]:
        words = tuple(self._set(lines, style, align))
        self.skip(len(lines) * style.pitch_px)
        return words

    def _set(self, lines: Lines, style: Style, align: Align) -> Iterator[Word]:
        baseline = self.top + style.pitch_px / 2 + (ASCENT - DESCENT) / 2 * style.em_px
        for number, line in enumerate(lines):
            justified = align == "justify" and number < len(lines) - 1
            yield from self._set_line(line, baseline + number * style.pitch_px, style, align, justified)

    def _set_line(
        self, line: Sequence[str], baseline_px: float, style: Style, align: Align, justified: bool
    ) -> Iterator[Word]:
        advances = [self._advance(word, style) for word in line]
        space = style.space * style.em_px
        if justified and len(line) > 1:
            filling = (self.width - sum(advances)) / (len(line) - 1)
            space = filling if filling < WIDEST_SPACES * space else space
        pen = self._start(sum(advances) + space * (len(line) - 1), align)
        for word, advance in zip(line, advances, strict=True):
            yield self.canvas.write(word, pen, baseline_px, style)
            pen += advance + space

    def _start(self, width_px: float, align: Align) -> float:
        slack = self.width - width_px
        return self.left + {"center": slack / 2, "right": slack}.get(align, 0.0)

    def _advance(self, word: str, style: Style) -> float:
        return self.canvas.advance_px(word, style)


def drafted(label: str, parts: Sequence[Sequence[Word]], form: str = "{}") -> Draft:
    """Make a block of the words of each of its boxes."""
    words = tuple(chain(*parts))
    inks = tuple(tuple(word.rect for word in part) for part in parts)
    return Draft(label, inks, form.format(" ".join(word.text for word in words)), words)
