"""A page to put ink on: places are given in pixels at crop scale, ink is measured in pixels of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image, ImageDraw

from pytest_dsocr.mini.page import Rect, Word
from pytest_dsocr.mini.typography import Colour, Stamp, Style, stamp


@dataclass(frozen=True)
class Draft:
    """A block before the page is tilted: for each of its boxes, the rects of the ink in it."""

    label: str
    inks: tuple[tuple[Rect, ...], ...]
    text: str
    words: tuple[Word, ...]


class Canvas:
    """An image of its own size, on which one draws at crop scale: ``width_px`` by ``height_px``."""

    def __init__(self, image: Image.Image, width_px: float, height_px: float) -> None:
        self.image = image
        self.width_px, self.height_px = width_px, height_px
        self.scale_x, self.scale_y = image.width / width_px, image.height / height_px
        self._draw = ImageDraw.Draw(image)

    def advance_px(self, text: str, style: Style) -> float:
        """Tell how far ``text`` takes the pen, at crop scale."""
        return self._stamp(text, style).advance_px / self.scale_x

    def write(self, text: str, x_px: float, baseline_px: float, style: Style) -> Word:
        """Draw ``text``, which has no space in it."""
        drawn = self._stamp(text, style)
        left, top = round(x_px * self.scale_x) + drawn.left_px, round(baseline_px * self.scale_y) + drawn.top_px
        self.image.paste(style.ink, (left, top), drawn.mask)
        return Word(text, Rect(left, top, left + drawn.mask.width, top + drawn.mask.height))

    def fill(self, rect: Rect, colour: Colour) -> Rect:
        """Paint ``rect``, and say which pixels that took."""
        covered = self.pixels(rect)
        self._draw.rectangle((covered.x1, covered.y1, covered.x2 - 1, covered.y2 - 1), fill=colour)
        return covered

    def place(self, picture: Image.Image, rect: Rect) -> Rect:
        """Stretch ``picture`` over ``rect``, and say which pixels that took."""
        covered = self.pixels(rect)
        left, top, right, bottom = map(round, covered)
        self.image.paste(picture.resize((right - left, bottom - top), Image.Resampling.BILINEAR), (left, top))
        return covered

    def pixels(self, rect: Rect) -> Rect:
        """Give the page's pixels that ``rect`` covers: at least one each way."""
        scales = (self.scale_x, self.scale_y) * 2
        left, top, right, bottom = (round(value * scale) for value, scale in zip(rect, scales, strict=True))
        return Rect(left, top, max(right, left + 1), max(bottom, top + 1))

    def _stamp(self, text: str, style: Style) -> Stamp:
        return stamp(text, style, self.scale_x, self.scale_y)


def union(rects: Iterable[Rect]) -> Rect:
    """Give the smallest rect around all of ``rects``, of which there is at least one."""
    lefts, tops, rights, bottoms = zip(*rects, strict=True)
    return Rect(min(lefts), min(tops), max(rights), max(bottoms))
