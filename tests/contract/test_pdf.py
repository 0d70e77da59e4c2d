"""PDF pages, of files that Pillow and pypdfium2 write."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from pytest_dsocr.contract.pdf import pdf_pages
from pytest_dsocr.foundation.errors import DsocrError


def pdf_of(*colours: str) -> bytes:
    """A PDF with a page of 2 x 1 inches for each colour."""
    pages = [Image.new("RGB", (200, 100), colour) for colour in colours]
    buffer = BytesIO()
    pages[0].save(buffer, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return buffer.getvalue()


def empty_pdf() -> bytes:
    buffer = BytesIO()
    pypdfium2.PdfDocument.new().save(buffer)
    return buffer.getvalue()


def locked_pdf() -> bytes:
    """A PDF whose password nobody knows: its check values were not made from any."""
    owner, user = b"AB" * 32, b"CD" * 32
    entries = b"/ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (owner, user)
    return pdf_of("white").replace(b"trailer\n<<", b"trailer\n<< " + entries)


def centre(page: Image.Image) -> Any:
    return page.getpixel((page.width // 2, page.height // 2))


def test_pages_come_one_by_one_at_the_vendors_144_dpi_and_the_file_is_let_go() -> None:
    pages: Any = pdf_pages(pdf_of("red", "blue"))
    document = pages.gi_frame.f_locals["pdf"]._document
    first = next(pages)
    assert document.raw
    second = next(pages)
    assert next(pages, None) is None
    assert not document.raw
    assert [(page.mode, page.size) for page in (first, second)] == [("RGB", (288, 144))] * 2
    assert (centre(first)[0] > 200, centre(second)[2] > 200) == (True, True)


def test_a_path_and_a_resolution(tmp_path: Path) -> None:
    path = tmp_path / "one.pdf"
    path.write_bytes(pdf_of("white"))
    assert [page.size for source in (path, str(path)) for page in pdf_pages(source, dpi=300)] == [(600, 300)] * 2


@pytest.mark.parametrize(
    ("source", "dpi", "message"),
    [
        (b"", 144, r"the data \(0 bytes\) cannot be read as a PDF"),
        (pdf_of("white")[:200], 144, "cannot be read as a PDF"),
        (empty_pdf(), 144, "cannot be read as a PDF.*give a whole one, with pages"),
        (locked_pdf(), 144, "cannot be read as a PDF.*[Pp]assword.*give a whole one, with pages"),
        ("absent.pdf", 144, "No such file"),
        (pdf_of("white"), 0, "dpi shows nothing"),
        (pdf_of("white"), float("nan"), "dpi shows nothing"),
    ],
    ids=["empty", "truncated", "no pages", "password", "absent", "no dpi", "dpi is no number"],
)
def test_what_cannot_be_opened_is_refused_at_once(source: str | bytes, dpi: float, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        pdf_pages(source, dpi=dpi)


def test_a_page_of_just_pillows_limit_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 100 // 2)
    assert next(pdf_pages(pdf_of("red"), dpi=100)).size == (200, 100)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 100 // 2 - 1)
    with pytest.raises(DsocrError, match=r"page 1 of .* would be 200 x 100 px, more than the limit of 19998;"):
        next(pdf_pages(pdf_of("red"), dpi=100))


def test_without_pypdfium2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(DsocrError, match=r"pip install 'pytest-dsocr\[pdf\]'"):
        pdf_pages(pdf_of("white"))
