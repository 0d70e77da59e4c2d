"""What the contract's suite says of wrong grids, views and prompts, and that it says nothing of right ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from pytest_dsocr.compare.verdict import equal
from pytest_dsocr.contract.image import global_view
from pytest_dsocr.contract.presets import PRESETS, crop_grid
from pytest_dsocr.engine.tokenizer import Tokenizer
from suites.contract.hints import RIGHT_GRID, hinted, of_cut_prompt, of_grid, of_no_crops, of_prompt, of_view

CHOSEN = "how a grid is chosen: this one comes"
ROUNDED = "aspect ratios rounded before they are compared"
GRIDS = [
    ((1, 641), (1, 6), f"{CHOSEN} of a limit of 6 crops; {RIGHT_GRID}"),
    ((1358, 1358), (2, 2), f"{CHOSEN} of a limit of 4 to 8 crops; {RIGHT_GRID}"),
    ((641, 1300), (2, 1), "the order of columns and rows: they are exchanged"),
    ((300, 200), (3, 2), "when a page is cut: not where both its sides are within 640 px, as here"),
    (
        (320, 2480),
        (1, 7),
        f"{CHOSEN} of {ROUNDED}, or of a limit of 7 crops; {RIGHT_GRID}",
    ),
    (
        (641, 600),
        (1, 1),
        "when a page is cut: where its width or its height is above 640 px, and not both; into two crops at least",
    ),
    (
        (320, 1754),
        (1, 5),
        f"{CHOSEN} of height over width, or of {ROUNDED}, or of a limit of 5 crops; {RIGHT_GRID}",
    ),
    ((1000, 1200), (2, 3), f"{CHOSEN} of {ROUNDED}; {RIGHT_GRID}"),
]


@pytest.mark.parametrize(("size", "mine", "told"), GRIDS)
def test_a_wrong_grid(size: tuple[int, int], mine: tuple[int, int], told: str) -> None:
    assert next(of_grid(size, mine)) == told


def test_what_stands_for_no_crops() -> None:
    assert next(of_no_crops("bfloat16 [1, 3, 512, 512]")).startswith("what stands for the crops of a page without any")
    assert not [*of_no_crops("float32 [1, 3, 640, 640]")]


def test_another_limit_is_another_list_of_candidates() -> None:
    assert crop_grid(5000, 320) == (9, 1)
    assert crop_grid(5000, 320, most=6) == (6, 1)
    assert crop_grid(5000, 320, most=12) == (12, 1)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 500, 3), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize(
    ("preset", "told"), [("base", "whether the page is squashed"), ("tiny", "whether the page is padded")]
)
def test_a_view_made_the_other_way(preset: str, told: str, page: Path) -> None:
    side = (PRESETS[preset].view_size,) * 2
    with Image.open(page) as image:
        other = image.resize(side) if preset == "base" else ImageOps.pad(image, side, color=(127, 127, 127))
        right = global_view(image, PRESETS[preset])
    assert next(of_view(pixels(other), page, PRESETS[preset])).startswith(told)
    assert not [*of_view(pixels(right), page, PRESETS[preset])]


def pixels(view: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(view).copy()).permute(2, 0, 1)[None] / 127.5 - 1


def test_a_prompt_with_its_white_space() -> None:
    tokenizer = Tokenizer.byte_level(512)
    image = [tokenizer.special.image] * 3
    text = "<image>\nFree OCR. "
    mine = [0, *image, *tokenizer.encode("\nFree OCR. ")]
    assert next(of_prompt(mine, text, tokenizer)) == "the white space around the prompt: infer strips it"
    assert not [*of_prompt([0, *image, *tokenizer.encode("\nFree OCR.")], text, tokenizer)]


def test_markup_that_is_escaped() -> None:
    tokenizer = Tokenizer.byte_level(512)
    text = "<image>\nLocate <|ref|>a<|/ref|>."
    mine = [0, *[tokenizer.special.image] * 3, *tokenizer.encode("\nLocate < |ref|>a<|/ref|>.")]
    assert next(of_prompt(mine, text, tokenizer)).startswith("the markup in the prompt's text: <|ref|> is a token")


def test_a_prompt_that_was_cut() -> None:
    assert next(of_cut_prompt([500, 500, 21], 0)).startswith("that prompts are not cut: this one has 3 ids")
    assert not [*of_cut_prompt([0, 500, 21], 0)]


def test_a_view_whose_bars_are_a_pixel_off(page: Path) -> None:
    with Image.open(page) as image:
        right = global_view(image, PRESETS["base"])
    assert not [*of_view(pixels(right), page, PRESETS["base"])]
    assert next(of_view(pixels(right).roll(1, 2), page, PRESETS["base"])).startswith("how wide the bars are")


def test_an_image_moved_to_the_front() -> None:
    tokenizer = Tokenizer.byte_level(512)
    mine = [0, *[tokenizer.special.image] * 3, *tokenizer.encode("Read this: ")]
    assert next(of_prompt(mine, "Read this: <image>", tokenizer)).startswith("where the image stands: at the prompt's")


def test_a_hint_goes_to_what_is_wrong_alone() -> None:
    right, wrong = equal("it", 1, 1, "same"), equal("it", 1, 2, "same")
    assert hinted(right, lambda: iter(["this"])) is right
    assert hinted(wrong, lambda: iter(["this", "that"])).details[0] == "check: this"
    assert hinted(wrong, lambda: iter([])) is wrong
