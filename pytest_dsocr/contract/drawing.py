"""Boxes and labels drawn on a page: what every picture with boxes is made of."""

from __future__ import annotations

from typing import NamedTuple

from PIL import ImageDraw, ImageFont

from pytest_dsocr.contract.markup import PixelBox

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

LABEL_CHARACTERS = 40
DASH_PX = 8


class Stroke(NamedTuple):
    """How the outline of a box is drawn."""

    colour: Colour
    line_px: int
    dashed: bool = False


def draw_outline(pen: ImageDraw.ImageDraw, box: PixelBox, stroke: Stroke) -> None:
    """Draw the outline of a box whose corners are in order."""
    if not stroke.dashed:
        pen.rectangle(box, outline=stroke.colour, width=stroke.line_px)
        return
    x1, y1, x2, y2 = box
    for x in range(x1, x2, 2 * DASH_PX):
        for y in (y1, y2):
            pen.line((x, y, min(x + DASH_PX, x2), y), stroke.colour, stroke.line_px)
    for y in range(y1, y2, 2 * DASH_PX):
        for x in (x1, x2):
            pen.line((x, y, x, min(y + DASH_PX, y2)), stroke.colour, stroke.line_px)


def draw_label(pen: ImageDraw.ImageDraw, label: str, box: PixelBox, colour: Colour, font: Font) -> None:
    """Write a box's label in white on ``colour``: above the box, or inside it where the page ends above it."""
    text = one_line(label)
    page_width, page_height = pen.im.size
    left, top, right, bottom = map(round, pen.textbbox((0, 0), text, font=font))
    pad = max(2, (bottom - top) // 6)
    width, height = right - left + 2 * pad, bottom - top + 2 * pad
    x = max(0, min(box.x1, page_width - width))
    y = box.y1 - height if box.y1 >= height else min(box.y1, page_height - height)
    pen.rectangle((x, y, x + width, y + height), fill=colour)
    pen.text((x + pad - left, y + pad - top), text, font=font, fill="white")


def one_line(label: str) -> str:
    """Shorten a label to what fits on a page, on one line."""
    shown = "".join(c if c.isprintable() else " " for c in label[:LABEL_CHARACTERS])
    return shown if len(label) <= LABEL_CHARACTERS else shown + "..."


def on_page(box: PixelBox, width: int, height: int) -> PixelBox:
    """Clip a box to the page, and put its corners in order."""
    x1, x2 = sorted(max(0, min(x, width - 1)) for x in (box.x1, box.x2))
    y1, y2 = sorted(max(0, min(y, height - 1)) for y in (box.y1, box.y2))
    return PixelBox(x1, y1, x2, y2)
