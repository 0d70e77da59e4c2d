"""Words to ink: how a text looks, how wide it is, and where its lines break.

The one font is Pillow's own (Aileron), so that a seed gives the same page on every machine. Bold, slanted, spaced and
narrow faces are made from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from PIL import Image, ImageChops, ImageDraw, ImageFont

from pytest_dsocr.foundation.errors import DsocrError

Align = Literal["left", "center", "right", "justify"]
Colour = tuple[int, int, int]

ASCENT, DESCENT = 0.77, 0.21
"""How far ink reaches above and below the baseline, in em."""
SIZE_STEP_PX = 2
WIDTH_STEP = 0.05
_SHEAR = 0.2


@dataclass(frozen=True)
class Style:
    """How a text looks: ``em_px`` and ``pitch_px`` (line to line) at crop scale, the other lengths in em."""

    em_px: float
    pitch_px: float
    ink: Colour
    bold: bool = False
    slant: bool = False
    tracking: float = 0.0
    space: float = 0.35
    width: float = 1.0


@dataclass(frozen=True)
class Stamp:
    """Drawn words' ink in pixels of the page: where its upper left lies from the pen, and how far the pen goes on."""

    mask: Image.Image
    left_px: int
    top_px: int
    advance_px: float


def stamp(text: str, style: Style, scale_x: float, scale_y: float, tilt_degrees: float) -> Stamp:
    """Draw ``text`` for a page that has ``scale_x`` by ``scale_y`` of its pixels in a pixel at crop scale."""
    size_px = SIZE_STEP_PX * max(round(style.em_px * scale_y / SIZE_STEP_PX), 4)
    width_steps = round(style.width * scale_x / scale_y / WIDTH_STEP)
    return _stamp(text, size_px, width_steps, style.bold, style.slant, round(style.tracking * size_px), tilt_degrees)


def break_lines(words: Sequence[str], width_px: float, measure: Callable[[str], float], space_px: float) -> list[int]:
    """Count the words of each line of a text that is set in ``width_px``; a line has at least one."""
    counts: list[int] = []
    pen_px = math.inf
    for word in words:
        advance_px = measure(word)
        if pen_px + advance_px > width_px:
            counts.append(0)
            pen_px = 0.0
        counts[-1] += 1
        pen_px += advance_px + space_px
    return counts


@lru_cache(maxsize=4096)
def _stamp(
    text: str, size_px: int, width_steps: int, bold: bool, slant: bool, tracking_px: int, tilt_degrees: float
) -> Stamp:
    pen = size_px // 2, size_px + 2
    drawn, advance_px = _draw(text, size_px, tracking_px, pen)
    if bold:
        thick_px = max(1, round(size_px / 22))
        drawn = _embolden(drawn, thick_px)
        advance_px += thick_px
    width = width_steps * WIDTH_STEP
    if slant or tilt_degrees or width != 1:
        drawn = _bend(drawn, pen, width, _SHEAR if slant else 0.0, math.radians(tilt_degrees))
    box = drawn.getbbox() or (0, 0, 1, 1)
    return Stamp(drawn.crop(box), box[0] - pen[0], box[1] - pen[1], advance_px * width)


def _bend(mask: Image.Image, pen: tuple[int, int], width: float, shear: float, tilt: float) -> Image.Image:
    """Stretch, slant and turn ``mask`` around ``pen``."""
    sine, cosine = math.sin(tilt), math.cos(tilt)
    a, b = cosine / width + shear * sine, shear * cosine - sine / width
    inverse = (a, b, pen[0] - a * pen[0] - b * pen[1], sine, cosine, pen[1] - sine * pen[0] - cosine * pen[1])
    size = math.ceil(mask.width * max(width, 1)), mask.height
    return mask.transform(size, Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR)


def _draw(text: str, size_px: int, tracking_px: int, pen: tuple[int, int]) -> tuple[Image.Image, float]:
    font = _font(size_px)
    advance_px = font.getlength(text) + tracking_px * len(text)
    mask = Image.new("L", (math.ceil(advance_px) + 2 * pen[0], pen[1] + size_px // 2))
    draw = ImageDraw.Draw(mask)
    if not tracking_px:
        draw.text(pen, text, fill=255, font=font, anchor="ls")
        return mask, advance_px
    for n, letter in enumerate(text):
        x_px = pen[0] + font.getlength(text[:n]) + tracking_px * n
        draw.text((round(x_px), pen[1]), letter, fill=255, font=font, anchor="ls")
    return mask, advance_px


def _embolden(mask: Image.Image, thick_px: int) -> Image.Image:
    for _ in range(thick_px):
        mask = ImageChops.lighter(mask, ImageChops.offset(mask, 1, 0))
    return mask


@lru_cache(maxsize=128)
def _font(size_px: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size_px)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise DsocrError("this Pillow has no scalable font of its own; install one that is built with FreeType")
    return font
