"""The page with its boxes drawn: one colour a label, the same on every machine and in every run."""

from __future__ import annotations

import colorsys
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from pytest_dsocr.contract.drawing import Colour, Stroke, draw_label, draw_outline, on_page
from pytest_dsocr.contract.markup import PixelBox, Span
from pytest_dsocr.contract.regions import place

TITLE_LABEL = "title"
_FILL_OPACITY = 36  # of 255
# The labels that the model is known to write get colours that are easy to tell apart; any other label is hashed.
_COLOURS: dict[str, Colour] = {
    "title": (198, 40, 40),
    "sub_title": (216, 90, 16),
    "text": (25, 103, 190),
    "image": (30, 130, 60),
    "image_caption": (84, 130, 20),
    "table": (126, 50, 170),
    "table_caption": (176, 40, 130),
    "table_footnote": (130, 82, 100),
    "equation": (0, 122, 130),
    "list": (120, 92, 10),
}


@dataclass(frozen=True)
class _Pen:
    """Sizes in pixels, in proportion to the page and never below the vendor's."""

    line_px: int
    title_line_px: int
    font_px: int

    @classmethod
    def for_page(cls, width: int, height: int) -> _Pen:
        scale = max(width, height) / 1000
        return cls(max(2, round(2 * scale)), max(4, round(4 * scale)), max(11, round(13 * scale)))

    def outline_px(self, label: str) -> int:
        return self.title_line_px if label == TITLE_LABEL else self.line_px


def label_colour(label: str) -> Colour:
    """Give the colour of a label: dark enough for white letters on it."""
    if label in _COLOURS:
        return _COLOURS[label]
    digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).digest()
    red, green, blue = colorsys.hls_to_rgb(digest[0] / 256, 0.22 + digest[1] / 256 * 0.1, 0.75)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw_boxes(image: Image.Image, spans: Sequence[Span]) -> Image.Image:
    """Draw every box of ``spans`` on a copy of ``image`` and give it as RGB.

    A box that is inverted or reaches beyond the page is drawn where it lies on the page, its corners in order;
    :func:`pytest_dsocr.contract.regions.place` names its problem.
    """
    page = image.convert("RGB")
    pen = _Pen.for_page(*page.size)
    boxes = [(r.span.label, on_page(r.pixels, *page.size)) for r in place(spans, *page.size)]
    page = _filled(page, boxes)
    draw = ImageDraw.Draw(page)
    for label, box in boxes:
        draw_outline(draw, box, Stroke(label_colour(label), pen.outline_px(label)))
    font = ImageFont.load_default(pen.font_px)
    for label, box in boxes:  # after all outlines, so that none crosses a name
        draw_label(draw, label, box, label_colour(label), font)
    return page


def _filled(page: Image.Image, boxes: Sequence[tuple[str, PixelBox]]) -> Image.Image:
    tint = Image.new("RGBA", page.size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(tint)
    for label, box in boxes:
        draw.rectangle(box, fill=(*label_colour(label), _FILL_OPACITY))
    return Image.alpha_composite(page.convert("RGBA"), tint).convert("RGB")
