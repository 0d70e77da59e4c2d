"""PDF pages, of files that Pillow and pypdfium2 write."""

import sys
import time
from contextlib import closing
from io import BytesIO
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.pdf import Pdf


def pdf_of(*colours: str) -> bytes:
    """Return a PDF with a page of 2 x 1 inches for each colour."""
    pages = [Image.new("RGB", (200, 100), colour) for colour in colours]
    buffer = BytesIO()
    dates = dict.fromkeys(("creationDate", "modDate"), time.gmtime(0))  # the same bytes at any time
    pages[0].save(buffer, "PDF", save_all=True, append_images=pages[1:], resolution=100, **dates)
    return buffer.getvalue()


def empty_pdf() -> bytes:
    buffer = BytesIO()
    pypdfium2.PdfDocument.new().save(buffer)
    return buffer.getvalue()


def locked_pdf() -> bytes:
    """Return a PDF with a password that nobody knows: its check values were not made from any."""
    owner, user = b"AB" * 32, b"CD" * 32
    entries = b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (owner, user)
    return pdf_of("white").replace(b"trailer\n<<", b"trailer\n<< " + entries)


def centre(page: Image.Image) -> Any:
    return page.getpixel((page.width // 2, page.height // 2))


def test_pages_are_rendered_at_the_vendors_144_dpi() -> None:
    with closing(Pdf(pdf_of("red", "blue"), "two.pdf")) as pdf:
        first, second = (pdf.render(number) for number in (1, 2))
        assert len(pdf) == 2
    assert [(page.mode, page.size) for page in (first, second)] == [("RGB", (288, 144))] * 2
    assert (centre(first)[0] > 200, centre(second)[2] > 200) == (True, True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"it\.pdf cannot be read as a PDF"),
        (pdf_of("white")[:200], "cannot be read as a PDF"),
        (empty_pdf(), "cannot be read as a PDF.*give a whole one, with pages"),
        (locked_pdf(), "cannot be read as a PDF.*[Pp]assword.*give a whole one, with pages"),
    ],
    ids=["empty", "truncated", "no pages", "password"],
)
def test_what_cannot_be_opened_is_refused_at_once(data: bytes, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        Pdf(data, "it.pdf")


def test_a_page_of_just_pillows_limit_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Pdf(pdf_of("red"), "it.pdf")) as pdf:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 288 * 144 // 2)
        assert pdf.render(1).size == (288, 144)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 288 * 144 // 2 - 1)
        with pytest.raises(DsocrError, match=r"page 1 of it\.pdf would be 288 x 144 px, more than the limit of 41470;"):
            pdf.render(1)


def test_without_pypdfium2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(DsocrError, match=r"pip install 'pytest-dsocr\[pdf\]'"):
        Pdf(pdf_of("white"), "it.pdf")
