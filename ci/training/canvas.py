"""A page to put ink on: places are given in pixels at crop scale, ink is measured in pixels of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image, ImageDraw

from ci.training.page import Rect, Word
from ci.training.typography import Colour, Stamp, Style, stamp


@dataclass(frozen=True)
class Draft:
    """A block while the page is drawn: for each of its boxes, the rects of the ink in it."""

    label: str
    inks: tuple[tuple[Rect, ...], ...]
    text: str
    words: tuple[Word, ...]


class Canvas:
    """An image of its own size on which one draws at crop scale, ``width_px`` by ``height_px``.

    All that is drawn is turned around the middle by ``tilt_degrees``, counter-clockwise.
    """

    def __init__(self, image: Image.Image, width_px: float, height_px: float, tilt_degrees: float = 0.0) -> None:
        self.image = image
        self.width_px, self.height_px = width_px, height_px
        self.scale_x, self.scale_y = image.width / width_px, image.height / height_px
        self.tilt_degrees = tilt_degrees
        self._sine, self._cosine = math.sin(math.radians(tilt_degrees)), math.cos(math.radians(tilt_degrees))
        self._draw = ImageDraw.Draw(image)

    def advance_px(self, text: str, style: Style) -> float:
        """Tell how far ``text`` takes the pen, at crop scale."""
        return self._stamp(text, style).advance_px / self.scale_x

    def write(self, text: str, x_px: float, baseline_px: float, style: Style) -> Word:
        """Draw ``text``, which has no space in it."""
        drawn = self._stamp(text, style)
        x, y = self._pixel(x_px, baseline_px)
        left, top = round(x) + drawn.left_px, round(y) + drawn.top_px
        self.image.paste(style.ink, (left, top), drawn.mask)
        return Word(text, Rect(left, top, left + drawn.mask.width, top + drawn.mask.height))

    def fill(self, rect: Rect, colour: Colour) -> None:
        """Paint ``rect``."""
        if self.tilt_degrees:
            self._draw.polygon(self._corners(rect), fill=colour)
        else:
            left, top, right, bottom = self.bounds(rect)
            self._draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), fill=colour)

    def place(self, picture: Image.Image, rect: Rect) -> Rect:
        """Stretch ``picture`` over ``rect``, and give the bounds of the pixels that this took."""
        size = round((rect.x2 - rect.x1) * self.scale_x), round((rect.y2 - rect.y1) * self.scale_y)
        placed = picture.resize(size, Image.Resampling.BOX)
        mask = Image.new("L", size, 255)
        if self.tilt_degrees:
            placed, mask = (
                image.rotate(self.tilt_degrees, Image.Resampling.BILINEAR, expand=True) for image in (placed, mask)
            )
        x, y = self._pixel((rect.x1 + rect.x2) / 2, (rect.y1 + rect.y2) / 2)
        left, top = round(x - placed.width / 2), round(y - placed.height / 2)
        self.image.paste(placed, (left, top), mask)
        return Rect(left, top, left + placed.width, top + placed.height)

    def bounds(self, rect: Rect) -> Rect:
        """Give the bounds of ``rect`` in whole pixels of the page."""
        xs, ys = zip(*self._corners(rect), strict=True)
        return Rect(round(min(xs)), round(min(ys)), round(max(xs)), round(max(ys)))

    def _corners(self, rect: Rect) -> list[tuple[float, float]]:
        left, top, right, bottom = rect
        return [self._pixel(x, y) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]

    def _pixel(self, x_px: float, y_px: float) -> tuple[float, float]:
        """Give the place on the page, turned, of a place at crop scale."""
        middle_x, middle_y = self.image.width / 2, self.image.height / 2
        x, y = x_px * self.scale_x - middle_x, y_px * self.scale_y - middle_y
        return middle_x + x * self._cosine + y * self._sine, middle_y - x * self._sine + y * self._cosine

    def _stamp(self, text: str, style: Style) -> Stamp:
        return stamp(text, style, self.scale_x, self.scale_y, self.tilt_degrees)


def union(rects: Iterable[Rect]) -> Rect:
    """Give the smallest rect around all of ``rects``, of which there is at least one."""
    lefts, tops, rights, bottoms = zip(*rects, strict=True)
    return Rect(min(lefts), min(tops), max(rights), max(bottoms))
