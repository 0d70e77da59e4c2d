"""The pages of a PDF, through pypdfium2, which the extra ``pdf`` installs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from PIL import Image

from pytest_dsocr.contract.image import read_file
from pytest_dsocr.foundation.errors import DsocrError

POINTS_PER_INCH = 72
DEFAULT_DPI = 144
"""What the vendor's own PDF script renders at."""


def pdf_pages(source: str | os.PathLike[str] | bytes, *, dpi: float = DEFAULT_DPI) -> Iterator[Image.Image]:
    """Give an iterator over a PDF's pages, each rendered to RGB when its turn comes.

    Args:
        source: a path, or the file's bytes.
        dpi: pixels per inch.

    Raises:
        DsocrError: at once, where the extra is absent, ``dpi`` is not positive, or the file is missing, broken,
            without pages or wants a password; in its turn, where a page cannot be rendered or is larger than
            Pillow's limit.
    """
    name = f"the data ({len(source)} bytes)" if isinstance(source, bytes) else str(source)
    return _in_order(Pdf(source if isinstance(source, bytes) else read_file(source), name, dpi))


class Pdf:
    """An open PDF, whose pages are rendered one by one; a page that cannot be rendered does not affect the others.

    Args:
        data: the file's bytes.
        name: what messages call it.
        dpi: pixels per inch.

    Raises:
        DsocrError: where the extra is absent, ``dpi`` is not positive, or the file is broken, without pages or wants a
            password.
    """

    def __init__(self, data: bytes, name: str, dpi: float = DEFAULT_DPI) -> None:
        if not dpi > 0:
            raise DsocrError(f"{dpi} dpi shows nothing; give a positive number")
        self.name, self._scale = name, dpi / POINTS_PER_INCH
        self._document = _open(data, name)

    def __len__(self) -> int:
        """How many pages it has."""
        return len(self._document)

    def render(self, number: int) -> Image.Image:
        """Render a page to RGB; the first is number 1.

        Raises:
            DsocrError: where it cannot be rendered, or is larger than Pillow's limit.
        """
        try:
            page = self._document[number - 1]
            width_px, height_px = (round(side * self._scale) for side in page.get_size())
            limit_px = 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else None
            if limit_px and width_px * height_px > limit_px:
                raise DsocrError(
                    f"page {number} of {self.name} would be {width_px} x {height_px} px, more than the limit of "
                    f"{limit_px}; lower the dpi"
                )
            image: Image.Image = page.render(scale=self._scale).to_pil()
            return image
        except (RuntimeError, ValueError, MemoryError) as error:  # PdfiumError is a RuntimeError
            raise DsocrError(f"page {number} of {self.name} cannot be rendered ({error}); repair the file") from error

    def close(self) -> None:
        """Let go of the file."""
        self._document.close()


def _in_order(pdf: Pdf) -> Iterator[Image.Image]:
    try:
        for number in range(1, len(pdf) + 1):
            yield pdf.render(number)
    finally:
        pdf.close()


def _open(data: bytes, name: str) -> Any:
    try:
        import pypdfium2
    except ImportError:
        raise DsocrError("reading a PDF needs pypdfium2; pip install 'pytest-dsocr[pdf]'") from None
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise DsocrError(
            f"{name} cannot be read as a PDF ({error}); give a whole one, with pages and without a password"
        ) from error
