"""Each way of opening a page that is not the vendor's is named by the pixels that come of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.families import DEFAULT
from suites.contract.openings import OPENINGS, of_pixels
from suites.contract.pages import ORIENTATION_TAG, ROTATED_BY_90, canvas

VIEW, PRESET = "images_ori", "tiny"
TOKENIZER = Tokenizer.byte_level(512)
PAGES = {"EXIF": "turned", "white": "clear", "16-bit": "deep", "JPEG": "plain"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, image = tmp_path_factory.mktemp("pages"), Image.fromarray(canvas(700, 500))
    turned = Image.Exif()
    turned[ORIENTATION_TAG] = ROTATED_BY_90
    clear = image.copy()
    clear.putalpha(Image.linear_gradient("L").resize(image.size))
    deep = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    images = {"plain": image, "turned": image, "clear": clear, "deep": deep}
    for name, one in images.items():
        one.save(folder / f"{name}.png", exif=turned if name == "turned" else Image.Exif())
    return {name: folder / f"{name}.png" for name in images}


@pytest.mark.parametrize("told", OPENINGS)
def test_a_page_opened_otherwise(told: str, pages: dict[str, Path]) -> None:
    page = pages[next(name for part, name in PAGES.items() if part in told)]
    with Image.open(page) as image:
        opened = OPENINGS[told](image)
    mine, vendors = views(opened), views(page)
    assert [*of_pixels(VIEW, mine, vendors, page, PRESET, TOKENIZER)] == [f"how the page is opened: {told}"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pixels_that_are_not_rounded(dtype: str, pages: dict[str, Path]) -> None:
    vendors = views(pages["plain"])
    levels = ((vendors.float() + 1) * 127.5).round()
    mine = ((levels / 255 - 0.5) / 0.5).to(getattr(torch, dtype))
    [told] = of_pixels(VIEW, mine, vendors, pages["plain"], PRESET, TOKENIZER)
    assert told == f"the rounding: they are the vendor's levels in {dtype}; infer rounds pixels to bf16"


def test_other_pixels_are_not_explained(pages: dict[str, Path]) -> None:
    page, vendors = pages["plain"], views(pages["plain"])
    assert not [*of_pixels(VIEW, vendors.flip(-1), vendors, page, PRESET, TOKENIZER)]
    assert not [*of_pixels(VIEW, vendors[..., 1:], vendors, page, PRESET, TOKENIZER)]


def views(page: Path | Image.Image) -> torch.Tensor:
    return DEFAULT.prepare([page], "markdown", PRESET, TOKENIZER).images_ori
