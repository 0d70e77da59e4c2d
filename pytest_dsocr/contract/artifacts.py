"""The files that one output leaves: text, figures, and the page with its boxes."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from pytest_dsocr.contract.drawing import MAX_JPEG_SIDE_PX, Region, crop_figure, draw_boxes, place
from pytest_dsocr.contract.image import ImageSource, load_image
from pytest_dsocr.contract.markup import Span, clean_output, parse, to_mmd
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole

MMD = "result.mmd"
OVERLAY = "result_with_boxes.jpg"
OURS = "info.json"
"""What this project keeps beside the files of a case: everything that was read, as JSON."""
GEOMETRY = "geo.jpg"
"""A picture that the vendor draws of an output with lines and points, with matplotlib. Nothing here draws it: another
version of matplotlib draws other pixels, and what it shows stands in ``result.mmd``."""
_GEOMETRY_MARKER = "line_type"  # the vendor takes any output that holds this word for a geometry figure


@dataclass(frozen=True)
class Artifacts:
    """The files that :func:`write_artifacts` wrote, in order, and every problem it met."""

    paths: tuple[Path, ...]
    problems: tuple[str, ...]


def write_artifacts(text: str, image: ImageSource, directory: str | Path) -> Artifacts:
    """Write what the vendor writes for the decoded output ``text`` of the page ``image``.

    The files are ``result.mmd``, ``images/<k>.jpg`` for each figure that can be cut out, and
    ``result_with_boxes.jpg``. The vendor's ``geo.jpg`` is not drawn; see :data:`GEOMETRY`. Everything is made before
    anything is written; each file then appears whole or not at all, even where several writers share the directory.
    Other files in it stay.

    Raises:
        DsocrError: where ``image`` cannot be read, ``directory`` cannot be written, or ``text`` cannot be encoded.
    """
    page = load_image(image)
    mmd, markup = to_mmd(text), parse(clean_output(text))
    regions = place(markup.spans, *page.size)
    problems = [*markup.problems, *(region.problem for region in regions if region.problem)]
    pictures = _pictures(page, markup.spans, regions, mmd, problems)
    files = {MMD: _utf8(mmd), **pictures}
    paths = tuple(Path(directory, name) for name in files)
    for path, content in zip(paths, files.values(), strict=True):
        write_whole(path, content, shared=True)
    return Artifacts(paths, tuple(problems))


def _pictures(
    page: Image.Image, spans: Sequence[Span], regions: Sequence[Region], mmd: str, problems: list[str]
) -> dict[str, bytes]:
    """Make every picture that can be made, by file name; add to ``problems`` why one cannot."""
    makers: dict[str, Callable[[], Image.Image]] = {
        f"images/{region.figure}.jpg": partial(crop_figure, page, region.pixels)
        for region in regions
        if region.figure is not None
    }
    if _GEOMETRY_MARKER in mmd:
        problems.append(f"{GEOMETRY} is not drawn; {MMD} holds its lines and points")
    makers["result_with_boxes.jpg"] = partial(draw_boxes, page, spans)
    pictures: dict[str, bytes] = {}
    for name, make in makers.items():
        try:
            pictures[name] = _jpeg(make())
        except DsocrError as error:
            problems.append(f"{name} is not written: {error}")
    return pictures


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
