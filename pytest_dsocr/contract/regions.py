"""Where the model's boxes lie on a page, which are figures, and which are faulty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image

from pytest_dsocr.contract.markup import IMAGE_LABEL, PixelBox, Span, quote, to_pixels
from pytest_dsocr.foundation.errors import DsocrError

MAX_JPEG_SIDE_PX = 65500  # libjpeg's limit
MAX_FIGURE_PX = 89_478_485  # as many pixels as Pillow accepts in a file before it warns of a bomb


@dataclass(frozen=True)
class Region:
    """One box on the page.

    ``pixels`` are the vendor's, so they may be inverted or reach beyond the page; ``problem`` then says so.
    ``figure`` is the number in ``images/<number>.jpg`` of a box with the label ``image``, else None.
    """

    span: Span
    pixels: PixelBox
    figure: int | None
    problem: str | None


def place(spans: Iterable[Span], width: int, height: int) -> tuple[Region, ...]:
    """Place every box of ``spans`` on a page of ``width`` x ``height`` pixels.

    Figures are numbered by box, in order, and a box that gives no picture uses up its number all the same.
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
    """Cut one figure out of the clean page; what lies beyond the page is black, as the vendor has it.

    Raises:
        DsocrError: where it cannot be saved as a JPEG.
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
