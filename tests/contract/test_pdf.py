"""PDF pages, of files that Pillow and pypdfium2 write."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.pdf import pdf_pages
from pytest_dsocr.foundation.errors import DsocrError

INCH_PT = 72


def pdf_of(*colours: str) -> bytes:
    """A PDF with a page of 2 x 1 inches for each colour."""
    pages = [Image.new("RGB", (200, 100), colour) for colour in colours]
    buffer = BytesIO()
    pages[0].save(buffer, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return buffer.getvalue()


def large_pdf() -> bytes:
    document = pypdfium2.PdfDocument.new()
    document.new_page(200 * INCH_PT, 200 * INCH_PT)
    buffer = BytesIO()
    document.save(buffer)
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


def test_pages_in_order_at_the_vendors_144_dpi() -> None:
    pages = list(pdf_pages(pdf_of("red", "blue")))
    assert [(page.mode, page.size) for page in pages] == [("RGB", (288, 144))] * 2
    assert [centre(page).index(max(centre(page))) for page in pages] == [0, 2]


@pytest.mark.parametrize(("dpi", "size"), [(72, (144, 72)), (300, (600, 300))])
def test_dpi(dpi: int, size: tuple[int, int]) -> None:
    [page] = pdf_pages(pdf_of("white"), dpi=dpi)
    assert page.size == size


def test_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "one.pdf"
    path.write_bytes(pdf_of("white"))
    assert len(list(pdf_pages(path))) == len(list(pdf_pages(str(path)))) == 1


def test_pages_come_one_by_one() -> None:
    pages = pdf_pages(pdf_of("red", "blue"))
    assert isinstance(pages, Iterator)
    assert centre(next(pages))[0] > 200
    assert centre(next(pages))[2] > 200
    assert next(pages, None) is None


def test_the_file_is_let_go_behind_its_last_page() -> None:
    pages: Any = pdf_pages(pdf_of("red", "blue"))
    document = pages.gi_frame.f_locals["pdf"]._document
    next(pages)
    assert document.raw
    assert len(list(pages)) == 1
    assert not document.raw


def test_a_pdf_given_as_an_image_is_sent_here() -> None:
    with pytest.raises(DsocrError, match=r"is a PDF; take its pages with pytest_dsocr.contract.pdf.pdf_pages"):
        load_image(pdf_of("white"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"the data \(0 bytes\) cannot be read as a PDF"),
        (b"no PDF at all", "cannot be read as a PDF"),
        (pdf_of("white")[:200], "cannot be read as a PDF"),
        (empty_pdf(), "cannot be read as a PDF.*give a whole one, with pages"),
        (
            locked_pdf(),
            "cannot be read as a PDF.*[Pp]assword.*give a whole one, with pages",
        ),
    ],
    ids=["empty", "text", "truncated", "no pages", "password"],
)
def test_broken_files_are_refused_at_once(data: bytes, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        pdf_pages(data)


@pytest.mark.parametrize(("name", "message"), [("absent.pdf", "No such file"), ("x" * 5000, "File name too long")])
def test_a_path_that_leads_to_no_file_is_refused_at_once(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match=message):
        pdf_pages(tmp_path / name)


@pytest.mark.parametrize("dpi", [0, -72, float("nan")])
def test_a_dpi_that_shows_nothing_is_refused_at_once(dpi: float) -> None:
    with pytest.raises(DsocrError, match="dpi shows nothing"):
        pdf_pages(pdf_of("white"), dpi=dpi)


def test_a_page_above_pillows_limit_is_refused() -> None:
    with pytest.raises(DsocrError, match=r"page 1 of .* would be 28800 x 28800 px, more than the limit of 178956970"):
        next(pdf_pages(large_pdf()))


def test_a_page_of_just_pillows_limit_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 100 // 2)
    assert next(pdf_pages(pdf_of("red"), dpi=100)).size == (200, 100)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200 * 100 // 2 - 1)
    with pytest.raises(DsocrError, match="more than the limit of 19998;"):
        next(pdf_pages(pdf_of("red"), dpi=100))


def test_without_pypdfium2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "pypdfium2":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DsocrError, match=r"pip install 'pytest-dsocr\[pdf\]'"):
        pdf_pages(pdf_of("white"))
