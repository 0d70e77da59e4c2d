"""The pages of a PDF, through pypdfium2, which the extra ``pdf`` installs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from PIL import Image

from pytest_dsocr.contract.image import read_file
from pytest_dsocr.errors import DsocrError

POINTS_PER_INCH = 72
DEFAULT_DPI = 144
"""What the vendor's own PDF script renders at."""


def pdf_pages(source: str | os.PathLike[str] | bytes, *, dpi: float = DEFAULT_DPI) -> Iterator[Image.Image]:
    """Give an iterator over a PDF's pages, each rendered to RGB when its turn comes.

    Args:
        source: a path, or the file's bytes.
        dpi: pixels per inch.

    Raises:
        DsocrError: at once, where the extra is absent, ``dpi`` is not positive, or the file is missing, broken or
            wants a password; in its turn, where a page cannot be rendered or is larger than Pillow's limit.
    """
    if not dpi > 0:
        raise DsocrError(f"{dpi} dpi shows nothing; give a positive number")
    name = f"the data ({len(source)} bytes)" if isinstance(source, bytes) else str(source)
    document = _open(source if isinstance(source, bytes) else read_file(source), name)
    return _render(document, name, dpi / POINTS_PER_INCH)


def _open(data: bytes, name: str) -> Any:
    try:
        import pypdfium2
    except ImportError:
        raise DsocrError("reading a PDF needs pypdfium2; pip install 'pytest-dsocr[pdf]'") from None
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise DsocrError(f"{name} cannot be read as a PDF ({error}); give one that opens without a password") from error


def _render(document: Any, name: str, scale: float) -> Iterator[Image.Image]:
    try:
        for number in range(1, len(document) + 1):
            yield _render_page(document, number, name, scale)
    finally:
        document.close()


def _render_page(document: Any, number: int, name: str, scale: float) -> Image.Image:
    try:
        page = document[number - 1]
        width_px, height_px = (round(side * scale) for side in page.get_size())
        limit_px = 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else None
        if limit_px and width_px * height_px > limit_px:
            raise DsocrError(
                f"page {number} of {name} would be {width_px} x {height_px} px, more than the limit of {limit_px}; "
                "lower the dpi"
            )
        image: Image.Image = page.render(scale=scale).to_pil()
        return image
    except (RuntimeError, ValueError, MemoryError) as error:  # PdfiumError is a RuntimeError
        raise DsocrError(f"page {number} of {name} cannot be rendered ({error}); repair the file") from error
