"""The files that one output leaves: text, figures, and the page with its boxes."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.words import count
from pytest_dsocr.contract.drawing import MAX_JPEG_SIDE_PX, crop_figure, draw_boxes, place
from pytest_dsocr.contract.image import SINGLE, ImageSource, files_of, load_image
from pytest_dsocr.contract.markup import OutputForm, Span, clean_output, parse, rewritten, to_mmd, to_pixels

MMD = "result.mmd"
"""Name of the comparison of result files, whatever a model calls its file."""
OVERLAY = "result_with_boxes.jpg"
OURS = "info.json"
"""File that this project writes besides the vendor's: all that was read, as JSON."""
GEOMETRY = "geo.jpg"
"""Picture that the vendor draws with matplotlib for an output with lines and points. This project does not draw it:
another version of matplotlib draws other pixels, and ``result.mmd`` has its content."""
PAGE = "<PAGE>"
"""Mark before each page's text, from a model that reads several pages in one prompt."""
_GEOMETRY_MARKER = "line_type"  # the vendor takes any output that holds this word for a geometry figure


@dataclass(frozen=True)
class Artifacts:
    """The files that :func:`write_artifacts` wrote, in order, and every problem it met."""

    paths: tuple[Path, ...]
    problems: tuple[str, ...]


def write_artifacts(
    text: str, image: ImageSource | Sequence[ImageSource], directory: str | Path, form: OutputForm
) -> Artifacts:
    """Write the vendor's files for the decoded output ``text`` of the page ``image``.

    The files are ``result.mmd``, ``images/<k>.jpg`` for each figure that can be cut out, and ``result_with_boxes.jpg``.
    Each page of a list or folder in one prompt has ``images/page_<p>_<k>.jpg`` and ``result_with_boxes_<p>.jpg``, if
    the output has as many pages. The vendor's ``geo.jpg`` is not drawn; see :data:`GEOMETRY`. All content is made
    before any file is written. Each file then appears whole or not at all, even if several writers share the directory.
    Other files in it stay.

    Raises:
        DsocrError: if ``image`` cannot be read, ``directory`` cannot be written, or ``text`` cannot be encoded.
    """
    problems: list[str] = []
    image = files_of(image) if isinstance(image, SINGLE) else image
    if isinstance(image, SINGLE):
        mmd = to_mmd(text, form)
        pictures = _of_page(clean_output(text), load_image(image), form, None, problems)
        if _GEOMETRY_MARKER in mmd:
            problems.append(f"{GEOMETRY} is not drawn; {form.result_file} holds its lines and points")
    else:
        mmd, pictures = _of_pages(split_pages(text), image, form, problems)
    files = {form.result_file: _utf8(mmd), **pictures}
    paths = tuple(Path(directory, name) for name in files)
    for path, content in zip(paths, files.values(), strict=True):
        write_whole(path, content, shared=True)
    return Artifacts(paths, tuple(problems))


def split_pages(text: str) -> list[str]:
    """Return the cleaned text of each page of several in one prompt, as it follows the page's ``<PAGE>``.

    Text before the first mark is dropped, as the vendor drops it; an output without a mark has no page.
    """
    return [page.strip() for page in clean_output(text).split(PAGE)[1:]]


def _of_pages(
    outputs: list[str], images: Sequence[ImageSource], form: OutputForm, problems: list[str]
) -> tuple[str, dict[str, bytes]]:
    """Make the Markdown and the pictures of several pages; what the output has beyond them stays as it is."""
    if len(outputs) != len(images):
        problems.append(f"the output is of {count(len(outputs), 'page')}, and {len(images)} were given")
    pictures: dict[str, bytes] = {}
    for number, (output, image) in enumerate(zip(outputs, images, strict=False)):
        found: list[str] = []
        pictures |= _of_page(output, load_image(image), form, number, found)
        outputs[number] = rewritten(output, form, _prefix(number))
        problems += [f"page {number}: {problem}" for problem in found]
    return f"{PAGE}\n" + f"\n{PAGE}\n".join(outputs), pictures


def _of_page(
    output: str, page: Image.Image, form: OutputForm, number: int | None, problems: list[str]
) -> dict[str, bytes]:
    """Make every picture of a page that can be made, by file name; add to ``problems`` what is wrong."""
    markup = parse(output, form)
    regions = place(markup.spans, *page.size)
    problems += [*markup.problems, *(region.problem for region in regions if region.problem)]
    makers: dict[str, Callable[[], Image.Image]] = {
        figure_of(number, region.figure): partial(crop_figure, page, region.pixels)
        for region in regions
        if region.figure is not None
    }
    makers[overlay_of(number)] = partial(draw_boxes, page, markup.spans)
    pictures: dict[str, bytes] = {}
    for name, make in makers.items():
        try:
            pictures[name] = _jpeg(make())
        except DsocrError as error:
            problems.append(f"{name} is not written: {error}")
    return pictures


def overlay_of(number: int | None) -> str:
    """Name the picture of a page with its boxes; ``number`` counts the pages of one prompt from 0."""
    return OVERLAY if number is None else OVERLAY.replace(".", f"_{number}.")


def figure_of(number: int | None, figure: int) -> str:
    """Name the picture of a figure on that page."""
    return f"images/{_prefix(number)}{figure}.jpg"


def boxes_in_pixels(spans: Iterable[Span], page_px: tuple[int, int], number: int | None = None) -> list[dict[str, Any]]:
    """Return the boxes of a page as ``info.json`` lists them: place and size, label, and the text after the block."""
    own = {} if number is None else {"page": number}
    corners = ((span, to_pixels(box, *page_px)) for span in spans for box in span.boxes)
    return [
        {**own, "x": x1, "y": y1, "w": x2 - x1, "h": y2 - y1, "label": span.label, "text": span.text}
        for span, (x1, y1, x2, y2) in corners
    ]


def _prefix(number: int | None) -> str:
    return "" if number is None else f"page_{number}_"


def _jpeg(image: Image.Image) -> bytes:
    """Encode with Pillow's default quality, as the vendor does."""
    if max(image.size) > MAX_JPEG_SIDE_PX:
        raise DsocrError(f"a JPEG cannot hold {image.width} x {image.height} px; give a smaller page")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    return buffer.getvalue()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DsocrError(
            f"the output holds half a character at offset {error.start}; decode whole token sequences"
        ) from error
