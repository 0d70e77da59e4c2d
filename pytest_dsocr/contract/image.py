"""A page as the RGB image that the vendor's code would see, and the views of it that go into the encoders."""

import hashlib
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import Format
from pytest_dsocr.contract.presets import Preset

ImageSource = str | os.PathLike[str] | bytes | Image.Image
SINGLE = (str, os.PathLike, bytes, Image.Image)
"""Types of a single page, as opposed to a list of pages."""
IMAGE_SUFFIXES = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""Suffixes of the files in a folder that are pages. A file that you name yourself may have any suffix but a list's."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
PDF_MAGIC = b"%PDF-"
PAGES = Format(bytes, "give the path of a page", MachineError, most_bytes=2**30)


def load_image(source: ImageSource) -> Image.Image:
    """Read a page as an upright RGB image.

    The EXIF orientation is applied if it can be read. Other modes are converted by Pillow's ``convert("RGB")``: alpha
    is dropped, so the colours below it reappear, and 16-bit levels are clipped to 255. The first of several frames is
    read. Pillow's limit on the number of pixels applies.

    Args:
        source: a path, an image file's bytes, or a Pillow image, which is not changed.

    Raises:
        DsocrError: if there is no such file, or it is not an image, broken, empty or too large.
    """
    name = _name(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a caller who turns warnings into errors must get the same page
            page = _upright_rgb(_opener(source, name))
    except DsocrError:
        raise
    except Image.DecompressionBombError as error:
        raise MachineError(f"{name} is refused ({error}); give a smaller page") from error
    except Exception as error:  # on a broken file Pillow's readers raise almost anything
        message = ADDRESS.sub("", repr(error))  # with it the same error is another each time
        raise MachineError(f"{name} cannot be read as an image ({message}); give a whole image file") from error
    if 0 in page.size:
        raise MachineError(f"{name} is {page.width} x {page.height} px, which is empty; give a page with pixels")
    return page


def files_of(page: ImageSource) -> ImageSource | list[Path]:
    """Return a page as it is; of a folder, which is several pages of one prompt, its images in the order of names."""
    if not isinstance(page, str | os.PathLike) or not Path(page).is_dir():
        return page
    return images_in(Path(page))


def images_in(folder: Path) -> list[Path]:
    """Return the images of a folder in the order of their names; raise ``OSError`` if it cannot be read."""
    visible = (file for file in folder.iterdir() if not file.name.startswith("."))
    return sorted(file for file in visible if file.suffix.lower() in IMAGE_SUFFIXES)


def load_images(page: ImageSource) -> Image.Image | list[Image.Image]:
    """Load a page, or all pages of a folder; see :func:`load_image`."""
    found = files_of(page)
    return [load_image(file) for file in found] if isinstance(found, list) else load_image(found)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Read a file that a user named; raise ``DsocrError`` if it cannot be read."""
    return PAGES.read_bytes(path)


def _upright_rgb(open_image: Callable[[], Image.Image]) -> Image.Image:
    try:
        page = ImageOps.exif_transpose(open_image())
    except Exception:  # a broken EXIF block is no reason to lose the page; a broken page fails again below
        page = open_image()
    return page.convert("RGB")


def _opener(source: ImageSource, name: str) -> Callable[[], Image.Image]:
    if isinstance(source, Image.Image):
        return lambda: source
    data = source if isinstance(source, bytes) else read_file(source)
    if data.startswith(PDF_MAGIC):
        raise DsocrError(f"{name} is a PDF; render its pages with pytest_dsocr.contract.pdf.Pdf")
    return lambda: Image.open(BytesIO(data))


def _name(source: ImageSource) -> str:
    if isinstance(source, Image.Image):
        return "the Pillow image"
    return f"the data ({len(source)} bytes)" if isinstance(source, bytes) else str(source)


GREY = (127, 127, 127)


def global_view(page: Image.Image, preset: Preset) -> Image.Image:
    """Return the square view of the whole RGB page, ``preset.view_size`` px wide.

    The page is centred between grey bars. Without crops a small view is squashed instead.

    Raises:
        DsocrError: where not one pixel of the page's short side would be left. Of the vendor's code, Pillow 13 makes a
            grey view there, and any older one a ``ValueError``.
    """
    side = preset.view_size
    if preset.is_squashed:
        return page.resize((side, side))
    if round(min(page.size) / max(page.size) * side) == 0:
        raise DsocrError(
            f"a page of {page.width} x {page.height} px vanishes in a view of {side} x {side}; "
            "cut it into pages that are less narrow"
        )
    return ImageOps.pad(page, (side, side), color=GREY[: len(page.getbands())])


def fitted(size: tuple[int, int], side: int, rounded: Callable[[float], int] = round) -> tuple[int, int]:
    """Return the sides of a page, not below 1, that is resized until the longer one fills a square of ``side`` px."""
    longest = max(size)
    width, height = (max(1, rounded(edge * (side / longest))) if edge < longest else side for edge in size)
    return width, height


def first_bars(
    size: tuple[int, int], side: int, place: float = 0.5, rounded: Callable[[float], int] = round
) -> tuple[int, int]:
    """Return the widths of the bars at the left and at the top of a page of this size in a square of ``side`` px.

    ``place`` is 0 for a page at the left or the top, and 1 for one at the right or the bottom.
    """
    left, top = (rounded((side - edge) * place) for edge in size)
    return left, top


SHAPES = ((200, 90), (90, 200))  # a tall and a wide probe, [H, W]


@cache
def resampling() -> str:
    """Return a fingerprint of ``resize`` on a tall and on a wide page.

    Pillow 13.0 rounds intermediate values of tall pages differently from earlier versions, up to 30 levels apart.
    """
    resized = (_probe(*shape).resize((30, 20)).tobytes() for shape in SHAPES)
    return hashlib.sha256(b"".join(resized)).hexdigest()[:16]


def _probe(height: int, width: int) -> Image.Image:
    """Draw noise by integer arithmetic, the same on every machine."""
    import numpy as np

    values = np.arange(height * width * 3, dtype=np.uint32) * np.uint32(0x9E3779B1)
    values = (values ^ (values >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    return Image.fromarray((values >> np.uint32(24)).astype(np.uint8).reshape(height, width, 3))
