"""The pages of a PDF, through pypdfium2, which the extra ``pdf`` installs."""

from typing import Any

from PIL import Image

from pytest_dsocr.base.errors import DsocrError

DEFAULT_DPI = 144
"""Resolution at which the vendor's own PDF script renders."""
SCALE = DEFAULT_DPI / 72
"""Pixels a point."""


class Pdf:
    """An open PDF, whose pages are rendered one by one; a page that cannot be rendered does not affect the others.

    Args:
        data: the file's bytes.
        name: the name of the file in messages.

    Raises:
        DsocrError: if the extra is absent, or the file is broken, has no pages or needs a password.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.name, self._document = name, _open(data, name)

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self._document)

    def render(self, number: int) -> Image.Image:
        """Render a page to RGB; the first is number 1.

        Raises:
            DsocrError: if it cannot be rendered, or is larger than Pillow's limit.
        """
        try:
            page = self._document[number - 1]
            width_px, height_px = (round(side * SCALE) for side in page.get_size())
            limit_px = 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else None
            if limit_px and width_px * height_px > limit_px:
                raise DsocrError(
                    f"page {number} of {self.name} would be {width_px} x {height_px} px, more than the limit of "
                    f"{limit_px}; give a smaller page"
                )
            image: Image.Image = page.render(scale=SCALE).to_pil()
            return image
        except (RuntimeError, ValueError, MemoryError) as error:  # PdfiumError is a RuntimeError
            raise DsocrError(f"page {number} of {self.name} cannot be rendered ({error}); repair the file") from error

    def close(self) -> None:
        """Let go of the file."""
        self._document.close()


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
