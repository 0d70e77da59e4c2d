"""Loading: what the vendor's reader does to a file, and what a file that is none gets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_dsocr.contract.image import ImageSource, image_size, load_image
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, rgb

SMALL_LIMIT_PX = 1000


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def with_orientation(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return encoded(rgb(6, 4), exif=exif)


def same(one: Image.Image, other: Image.Image) -> bool:
    return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())


def test_all_sources_of_a_page_are_the_same(tmp_path: Path) -> None:
    page = rgb(70, 50)
    path = tmp_path / "page.png"
    page.save(path)
    sources: list[ImageSource] = [path, str(path), path.read_bytes(), page, Image.open(path)]
    assert all(same(load_image(source), page) for source in sources)


def test_a_pillow_image_is_left_as_it_is() -> None:
    page = Image.open(BytesIO(with_orientation(ROTATED_BY_90)))
    loaded = load_image(page)
    loaded.paste((1, 2, 3), (0, 0, 4, 6))
    assert page.size == (6, 4)
    assert page.getexif()[ORIENTATION_TAG] == ROTATED_BY_90
    assert np.array_equal(np.asarray(page), np.asarray(rgb(6, 4)))


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda page: page),
        (2, lambda page: page[:, ::-1]),
        (3, lambda page: page[::-1, ::-1]),
        (4, lambda page: page[::-1]),
        (5, lambda page: page.transpose(1, 0, 2)),
        (6, lambda page: np.rot90(page, -1)),
        (7, lambda page: page[::-1, ::-1].transpose(1, 0, 2)),
        (8, lambda page: np.rot90(page)),
    ],
)
def test_exif_orientation_is_applied(orientation: int, turn: Callable[[Any], Any]) -> None:
    loaded = np.asarray(load_image(with_orientation(orientation)))
    assert np.array_equal(loaded, turn(np.asarray(rgb(6, 4))))


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "WEBP", "MPO"])
def test_the_size_alone_is_that_of_the_loaded_page(form: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    data = encoded(rgb(60, 40), form, exif=exif)
    assert image_size(data) == load_image(data).size == ((40, 60) if orientation in range(5, 9) else (60, 40))


@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP", "JPEG2000", "ICO"])
def test_the_size_alone_of_a_page_without_orientation(form: str) -> None:
    data = encoded(rgb(60, 40), form)
    assert image_size(data) == load_image(data).size
    assert image_size(encoded(rgb(60, 40), exif=b"Exif\x00\x00not a TIFF header")) == (60, 40)


def test_the_size_alone_is_read_without_the_pixels() -> None:
    cut = encoded(rgb(600, 400), "JPEG")[:900]
    assert image_size(cut) == (600, 400)
    with pytest.raises(DsocrError, match="truncated"):
        load_image(cut)


def test_orientation_behind_the_pixels_is_found() -> None:
    """PNG allows it there."""
    plain, turned = encoded(rgb(6, 4)), with_orientation(ROTATED_BY_90)
    start = turned.index(b"eXIf") - 4
    chunk = turned[start : turned.index(b"IDAT") - 4]
    end = plain.index(b"IEND") - 4
    late = plain[:end] + chunk + plain[end:]
    assert image_size(late) == load_image(late).size == (4, 6)


def test_a_broken_exif_block_costs_only_the_orientation() -> None:
    data = encoded(rgb(6, 4), exif=b"Exif\x00\x00not a TIFF header")
    with pytest.raises(SyntaxError):
        Image.open(BytesIO(data)).getexif()
    assert same(load_image(data), rgb(6, 4))


@pytest.mark.parametrize(
    ("image", "pixel"),
    [
        (Image.new("RGBA", (1, 1), (10, 20, 30, 0)), (10, 20, 30)),  # not composited: the hidden colour comes back
        (Image.new("LA", (1, 1), (90, 0)), (90, 90, 90)),
        (Image.new("L", (1, 1), 90), (90, 90, 90)),
        (Image.new("1", (1, 1), 1), (255, 255, 255)),
        (Image.new("I;16", (1, 1), 200), (200, 200, 200)),
        (Image.new("I;16", (1, 1), 0x5A7F), (255, 255, 255)),  # clipped, not scaled: a 16-bit scan is all but white
        (Image.new("CMYK", (1, 1), (0, 255, 255, 0)), (255, 0, 0)),
    ],
    ids=lambda value: value.mode if isinstance(value, Image.Image) else "",
)
def test_other_modes_become_rgb(image: Image.Image, pixel: tuple[int, int, int]) -> None:
    loaded = load_image(image)
    assert loaded.mode == "RGB"
    assert loaded.getpixel((0, 0)) == pixel


def test_a_palette_is_looked_up() -> None:
    page = Image.new("P", (2, 1))
    page.putpalette([0, 0, 0, 200, 100, 50])
    page.putpixel((1, 0), 1)
    assert np.asarray(load_image(encoded(page))).tolist() == [[[0, 0, 0], [200, 100, 50]]]


def test_of_several_frames_the_first_is_read() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    assert load_image(data).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"the data \(0 bytes\) cannot be read as an image"),
        (b"just some text", "cannot be read as an image.*cannot identify image file <_io.BytesIO object>"),
        (encoded(rgb(60, 60))[:600], "cannot be read as an image.*give a whole image file"),
        (encoded(rgb(60, 60), "JPEG")[:900], "cannot be read as an image.*truncated"),
        (b"%PDF-1.7\n%broken", "is a PDF.*pytest_dsocr.contract.pdf.pdf_pages"),
    ],
    ids=["empty", "text", "truncated PNG", "truncated JPEG", "PDF"],
)
def test_data_that_is_no_image_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        load_image(data)


@pytest.mark.parametrize("size", [(0, 0), (5, 0), (0, 5)])
def test_an_empty_image_is_refused(size: tuple[int, int]) -> None:
    for read in (load_image, image_size):
        with pytest.raises(DsocrError, match=f"is {size[0]} x {size[1]} px, which is empty"):
            read(Image.new("RGB", size))


def test_paths_that_lead_to_no_page(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no page")
    for path, message in {
        tmp_path: "is not a regular file",
        tmp_path / "absent.png": "absent.png cannot be read",
        tmp_path / ("x" * 5000): "cannot be read",
        text: "notes.txt cannot be read as an image",
    }.items():
        with pytest.raises(DsocrError, match=message):
            load_image(path)
        with pytest.raises(DsocrError, match=message):
            load_image(str(path))


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SMALL_LIMIT_PX)
    with pytest.raises(DsocrError, match=r"is refused.*exceeds limit of 2000 pixels.*give a smaller page"):
        load_image(encoded(rgb(50, 41)))
    with pytest.raises(DsocrError, match="is refused"):
        image_size(encoded(rgb(50, 41)))


def test_a_page_below_the_bomb_limit_is_read_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow warns from half its limit; neither the warning nor its becoming an error may change the page."""
    page = rgb(50, 40)
    data = encoded(page)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SMALL_LIMIT_PX)
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(BytesIO(data))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(load_image(data), page)


def test_pillows_limit_is_left_as_it_is() -> None:
    before = Image.MAX_IMAGE_PIXELS
    load_image(rgb(10, 10))
    assert before == Image.MAX_IMAGE_PIXELS == 1024**3 // 12
