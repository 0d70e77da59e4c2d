"""Loading: what the vendor's reader does to a file, what a file that is none gets, and how Pillow resizes."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import PIL
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import GREY, ImageSource, first_bars, fitted, load_image, resampling
from pytest_dsocr.contract.inputs import views
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb
from tests.contract.fuzzing import fuzz

FORMS = ("PNG", "JPEG", "TIFF", "WEBP", "MPO", "GIF", "BMP", "PPM", "TGA", "ICO", "PCX", "DDS", "JPEG2000")
WITH_EXIF = FORMS[:5]
HEADER_BYTES = 80


def encoded(image: Image.Image, form: str = "PNG", orientation: int = 1, **options: Any) -> bytes:
    if form in WITH_EXIF:
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = orientation
        options = {"exif": exif, **options}
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def same(one: Image.Image, other: Image.Image) -> bool:
    return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())


def test_all_sources_of_a_page_are_the_same(tmp_path: Path) -> None:
    page = rgb(70, 50)
    path = tmp_path / "page.png"
    page.save(path)
    sources: list[ImageSource] = [path, str(path), path.read_bytes(), page, Image.open(path)]
    assert all(same(load_image(source), page) for source in sources)


def test_a_pillow_image_is_left_as_it_is() -> None:
    page = Image.open(BytesIO(encoded(rgb(6, 4), orientation=ROTATED_BY_90)))
    load_image(page).paste((1, 2, 3), (0, 0, 4, 6))
    assert (page.size, page.getexif()[ORIENTATION_TAG]) == ((6, 4), ROTATED_BY_90)
    assert page.tobytes() == rgb(6, 4).tobytes()


@pytest.mark.parametrize("form", WITH_EXIF)
def test_a_turned_page_is_loaded_upright(form: str) -> None:
    for orientation in range(10):
        size = load_image(encoded(rgb(60, 40), form, orientation)).size
        assert size == ((40, 60) if orientation in range(5, 9) else (60, 40))


def test_orientation_behind_the_pixels_is_found() -> None:
    """PNG allows it there."""
    plain, turned = encoded(rgb(6, 4)), encoded(rgb(6, 4), orientation=ROTATED_BY_90)
    bare, chunk = (data[data.index(b"eXIf") - 4 : data.index(b"IDAT") - 4] for data in (plain, turned))
    plain = plain.replace(bare, b"")
    end = plain.index(b"IEND") - 4
    assert load_image(plain[:end] + chunk + plain[end:]).size == (4, 6)


def test_a_broken_exif_block_costs_only_the_orientation() -> None:
    data = encoded(rgb(6, 4), exif=b"Exif\x00\x00not a TIFF header")
    assert same(load_image(data), rgb(6, 4))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", r"the data \(0 bytes\) cannot be read as an image"),
        (b"just some text", "cannot be read as an image.*cannot identify image file <_io.BytesIO object>"),
        (encoded(rgb(60, 60))[:600], "cannot be read as an image.*give a whole image file"),
        (b"%PDF-1.7\n%broken", "is a PDF.*pytest_dsocr.contract.pdf.Pdf"),
        (Image.new("RGB", (0, 5)), "is 0 x 5 px, which is empty"),
        (Path(), "is not a regular file"),
        ("absent.png", "absent.png cannot be read"),
        ("x" * 5000, "cannot be read"),
    ],
    ids=["no bytes", "text", "truncated", "PDF", "no pixels", "folder", "absent", "name too long"],
)
def test_what_is_no_page_is_refused(source: ImageSource, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        load_image(source)


def test_pillows_limit_of_pixels_holds_and_its_warning_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DsocrError, match=r"is refused.*exceeds limit of 2000 pixels.*give a smaller page"):
        load_image(encoded(rgb(50, 41)))
    page = rgb(50, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(load_image(encoded(page)), page)


SEEDS = [encoded(rgb(37, 23), form, ROTATED_BY_90) for form in FORMS]


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    """Return a real file with some bytes changed, most of them in its header, perhaps cut short or with more behind."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    spots = st.integers(0, HEADER_BYTES) | st.integers(0, len(data) - 1)
    for spot, value in draw(st.lists(st.tuples(spots, st.integers(0, 255)), max_size=8)):
        data[min(spot, len(data) - 1)] = value
    end = draw(st.just(len(data)) | st.integers(0, len(data)))
    return bytes(data[:end]) + draw(st.binary(max_size=8))


@fuzz
@given(broken_files() | st.binary(max_size=200))
def test_nothing_but_the_projects_error_escapes(data: bytes) -> None:
    try:
        page = load_image(data)
    except DsocrError:
        return
    assert page.mode == "RGB"
    assert min(page.size) > 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("channels", ["RGB", "RRR", "RRB", "RGG", "RGR"])
def test_views_are_what_pillow_makes_of_all_channels_together(channels: str, threads: int) -> None:
    colours, usual, side = dict(zip("RGB", rgb(900, 700).split(), strict=True)), torch.get_num_threads(), (1024, 1024)
    page = Image.merge("RGB", [colours[name] for name in channels])
    torch.set_num_threads(threads)
    try:
        whole, crops = views(page, DEEPSEEK_OCR.preset("gundam"), (3, 2))
    finally:
        torch.set_num_threads(usual)
    stretched = crops.view(2, 3, 3, 640, 640).permute(0, 3, 1, 4, 2).reshape(1280, 1920, 3)
    assert same(Image.fromarray(whole[0].permute(1, 2, 0).numpy()), ImageOps.pad(page, side, color=GREY))
    assert same(Image.fromarray(stretched.numpy()), page.resize((1920, 1280)))


def test_the_installed_pillow_resizes_as_its_version_was_found_to() -> None:
    """Recordings are found by it, so that it must be the same on every machine with this Pillow."""
    before_13, since_13 = "4e7a837ab1a41daf", "85ab7edb4ccf5db9"
    assert resampling() == (since_13 if int(PIL.__version__.split(".")[0]) >= 13 else before_13)


@given(st.tuples(st.integers(20, 400), st.integers(20, 400)), st.integers(16, 256), st.sampled_from([0, 0.5, 1]))
def test_a_page_and_its_bars_lie_where_pillow_puts_them(size: tuple[int, int], side: int, place: float) -> None:
    padded = ImageOps.pad(Image.new("L", size, 255), (side, side), centering=(place, place))
    inner = fitted(size, side)
    left, top = first_bars(inner, side, place)
    assert padded.getbbox() == (left, top, left + inner[0], top + inner[1])
