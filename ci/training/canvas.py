"""Ink on a page. Places and sizes are in pixels of its crops; ink is measured in pixels of the page.

The font is Pillow's own (Aileron): a seed draws the same page on every machine.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from PIL import Image, ImageChops, ImageDraw, ImageFont

from ci.training.page import Rect, Word

Align = Literal["left", "center", "right", "justify"]
Colour = tuple[int, int, int]
ASCENT, DESCENT = 0.77, 0.21
"""Reach of ink above and below the baseline, in em."""
SIZE_STEP_PX, WIDTH_STEP, SHEAR = 2, 0.05, 0.2


@dataclass(frozen=True)
class Style:
    """Look of a text: ``em_px`` and ``pitch_px`` (line to line) in pixels of crops, the other lengths in em."""

    em_px: float
    pitch_px: float
    ink: Colour
    bold: bool = False
    slant: bool = False
    tracking: float = 0.0
    space: float = 0.35
    width: float = 1.0

    @property
    def baseline_px(self) -> float:
        """Distance from the top of a line to its baseline."""
        return self.pitch_px / 2 + (ASCENT - DESCENT) / 2 * self.em_px


class Canvas:
    """An image that is drawn on as if it were ``width_px`` by ``height_px``, turned around its middle."""

    def __init__(self, image: Image.Image, width_px: float, height_px: float, tilt_degrees: float) -> None:
        self.image, self.width_px, self.height_px = image, width_px, height_px
        self.scale_x, self.scale_y = image.width / width_px, image.height / height_px
        self.tilt_degrees = tilt_degrees
        self._sine, self._cosine = math.sin(math.radians(tilt_degrees)), math.cos(math.radians(tilt_degrees))
        self._draw = ImageDraw.Draw(image)

    def advance_px(self, text: str, style: Style) -> float:
        """Return the width that ``text`` takes."""
        return self._stamp(text, style)[3] / self.scale_x

    def write(self, text: str, x_px: float, baseline_px: float, style: Style) -> Word:
        """Draw ``text``, which has no space in it."""
        mask, left_px, top_px, _ = self._stamp(text, style)
        x, y = self._pixel(x_px, baseline_px)
        left, top = round(x) + left_px, round(y) + top_px
        self.image.paste(style.ink, (left, top), mask)
        return Word(text, Rect(left, top, left + mask.width, top + mask.height))

    def fill(self, rect: Rect, colour: Colour) -> None:
        """Paint ``rect``."""
        if self.tilt_degrees:
            self._draw.polygon(self._corners(rect), fill=colour)
        else:
            left, top, right, bottom = self.bounds(rect)
            self._draw.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), fill=colour)

    def place(self, picture: Image.Image, rect: Rect) -> Rect:
        """Stretch ``picture`` over ``rect``; return the bounds of its pixels."""
        size = round((rect.x2 - rect.x1) * self.scale_x), round((rect.y2 - rect.y1) * self.scale_y)
        placed, mask = picture.resize(size, Image.Resampling.BOX), Image.new("L", size, 255)
        if self.tilt_degrees:
            placed, mask = (
                one.rotate(self.tilt_degrees, Image.Resampling.BILINEAR, expand=True) for one in (placed, mask)
            )
        x, y = self._pixel((rect.x1 + rect.x2) / 2, (rect.y1 + rect.y2) / 2)
        left, top = round(x - placed.width / 2), round(y - placed.height / 2)
        self.image.paste(placed, (left, top), mask)
        return Rect(left, top, left + placed.width, top + placed.height)

    def bounds(self, rect: Rect) -> Rect:
        """Return the bounds of ``rect`` in whole pixels of the page."""
        xs, ys = zip(*self._corners(rect), strict=True)
        return Rect(round(min(xs)), round(min(ys)), round(max(xs)), round(max(ys)))

    def _corners(self, rect: Rect) -> list[tuple[float, float]]:
        left, top, right, bottom = rect
        return [self._pixel(x, y) for x, y in ((left, top), (right, top), (right, bottom), (left, bottom))]

    def _pixel(self, x_px: float, y_px: float) -> tuple[float, float]:
        middle_x, middle_y = self.image.width / 2, self.image.height / 2
        x, y = x_px * self.scale_x - middle_x, y_px * self.scale_y - middle_y
        return middle_x + x * self._cosine + y * self._sine, middle_y - x * self._sine + y * self._cosine

    def _stamp(self, text: str, style: Style) -> tuple[Image.Image, int, int, float]:
        size_px = SIZE_STEP_PX * max(round(style.em_px * self.scale_y / SIZE_STEP_PX), 4)
        width_steps = round(style.width * self.scale_x / self.scale_y / WIDTH_STEP)
        tracking_px = round(style.tracking * size_px)
        return _stamp(text, size_px, width_steps, style.bold, style.slant, tracking_px, self.tilt_degrees)


@lru_cache(maxsize=4096)
def _stamp(
    text: str, size_px: int, width_steps: int, bold: bool, slant: bool, tracking_px: int, tilt_degrees: float
) -> tuple[Image.Image, int, int, float]:
    """Draw a word; return its ink, where this begins left of the pen and above it, and the pen's way."""
    pen = size_px // 2, size_px + 2
    font = ImageFont.load_default(size_px)
    advance_px = font.getlength(text) + tracking_px * len(text)
    mask = Image.new("L", (math.ceil(advance_px) + 2 * pen[0], pen[1] + size_px // 2))
    draw = ImageDraw.Draw(mask)
    letters = enumerate(text) if tracking_px else [(0, text)]
    for n, letter in letters:
        x_px = pen[0] + font.getlength(text[:n]) + tracking_px * n
        draw.text((round(x_px), pen[1]), letter, fill=255, font=font, anchor="ls")
    thick_px = max(1, round(size_px / 22)) if bold else 0
    for _ in range(thick_px):
        mask = ImageChops.lighter(mask, ImageChops.offset(mask, 1, 0))
    width = width_steps * WIDTH_STEP
    if slant or tilt_degrees or width != 1:
        mask = _bend(mask, pen, width, SHEAR if slant else 0.0, math.radians(tilt_degrees))
    box = mask.getbbox() or (0, 0, 1, 1)
    return mask.crop(box), box[0] - pen[0], box[1] - pen[1], (advance_px + thick_px) * width


def _bend(mask: Image.Image, pen: tuple[int, int], width: float, shear: float, tilt: float) -> Image.Image:
    """Stretch, slant and turn ``mask`` around ``pen``."""
    sine, cosine = math.sin(tilt), math.cos(tilt)
    a, b = cosine / width + shear * sine, shear * cosine - sine / width
    inverse = (a, b, pen[0] - a * pen[0] - b * pen[1], sine, cosine, pen[1] - sine * pen[0] - cosine * pen[1])
    size = math.ceil(mask.width * max(width, 1)), mask.height
    return mask.transform(size, Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR)
