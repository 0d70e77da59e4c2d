"""Boxes on a page: their places, figures, faults and drawing."""

import colorsys
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.markup import IMAGE_LABEL, PixelBox, Span, quote, to_pixels

MAX_JPEG_SIDE_PX = 65500  # libjpeg's limit
MAX_FIGURE_PX = 89_478_485  # the most pixels that Pillow accepts in a file without a warning


@dataclass(frozen=True)
class Region:
    """A box to draw on the page.

    ``pixels`` are the vendor's, so they may be inverted or reach beyond the page; ``problem`` then says so.
    ``figure`` is the number in ``images/<number>.jpg`` of a box with the label ``image``, else None.
    """

    span: Span
    pixels: PixelBox
    figure: int | None
    problem: str | None


def place(spans: Iterable[Span], width: int, height: int) -> tuple[Region, ...]:
    """Place every box of ``spans`` on a page of ``width`` x ``height`` pixels.

    Figures are numbered by box, in order; a box that yields no picture uses up its number too.
    """
    regions: list[Region] = []
    figures = 0
    for span in spans:
        is_figure = span.label == IMAGE_LABEL
        for box in span.boxes:
            pixels = to_pixels(box, width, height)
            figure = figures if is_figure else None
            regions.append(Region(span, pixels, figure, _problem(span.label, pixels, width, height)))
            figures += is_figure
    return tuple(regions)


def crop_figure(image: Image.Image, pixels: PixelBox) -> Image.Image:
    """Cut one figure out of the clean page; parts beyond the page are black, as in the vendor's code.

    Raises:
        DsocrError: if it cannot be saved as a JPEG.
    """
    x1, y1, x2, y2 = pixels
    width, height = x2 - x1, y2 - y1
    if width <= 0 or height <= 0:
        raise DsocrError(f"a box of {width} x {height} px gives no figure")
    if max(width, height) > MAX_JPEG_SIDE_PX or max(width * height, *map(abs, pixels)) > MAX_FIGURE_PX:
        raise DsocrError(f"a figure of {width} x {height} px at ({x1}, {y1}) is too large or too far off to cut out")
    return image.crop(pixels)


def _problem(label: str, pixels: PixelBox, width: int, height: int) -> str | None:
    x1, y1, x2, y2 = pixels
    name = f"{quote(label)} box {tuple(pixels)}"
    if x2 < x1 or y2 < y1:
        return f"{name} is inverted"
    if x1 == x2 or y1 == y2:
        return f"{name} has no area"
    if min(x1, y1) < 0 or x2 > width or y2 > height:
        return f"{name} reaches beyond the page of {width} x {height} px"
    return None


Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

LABEL_CHARACTERS = 40
DASH_PX = 8


class Stroke(NamedTuple):
    """Style of a box's outline."""

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
    """Write a box's label in white on ``colour``: above the box, or inside it if the page ends above it."""
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


TITLE_LABEL = "title"
_FILL_OPACITY = 36  # 255 is opaque
# Known labels of the model get colours that are easy to distinguish; any other label is hashed.
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


def label_colour(label: str) -> Colour:
    """Return the colour of a label: dark enough for white letters on it."""
    if label in _COLOURS:
        return _COLOURS[label]
    digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).digest()
    red, green, blue = colorsys.hls_to_rgb(digest[0] / 256, 0.22 + digest[1] / 256 * 0.1, 0.75)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw_boxes(image: Image.Image, spans: Sequence[Span]) -> Image.Image:
    """Draw every box of ``spans`` on an RGB copy of ``image``.

    An inverted box, or one that reaches beyond the page, is drawn where it lies on the page, with its corners in order;
    :func:`pytest_dsocr.contract.drawing.place` names its problem.
    """
    page = image.convert("RGB")
    scale = max(page.size) / 1000  # sizes grow with the page, and are never below the vendor's
    line_px, title_px, font_px = max(2, round(2 * scale)), max(4, round(4 * scale)), max(11, round(13 * scale))
    boxes = [(r.span.label, on_page(r.pixels, *page.size)) for r in place(spans, *page.size)]
    page = _filled(page, boxes)
    draw = ImageDraw.Draw(page)
    for label, box in boxes:
        draw_outline(draw, box, Stroke(label_colour(label), title_px if label == TITLE_LABEL else line_px))
    font = ImageFont.load_default(font_px)
    for label, box in boxes:  # after all outlines, so that none crosses a name
        draw_label(draw, label, box, label_colour(label), font)
    return page


def _filled(page: Image.Image, boxes: Sequence[tuple[str, PixelBox]]) -> Image.Image:
    tint = Image.new("RGBA", page.size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(tint)
    for label, box in boxes:
        draw.rectangle(box, fill=(*label_colour(label), _FILL_OPACITY))
    return Image.alpha_composite(page.convert("RGBA"), tint).convert("RGB")
