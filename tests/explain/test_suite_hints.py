"""A wrong fact of the contract: the suite names the mistake of inputs that leads to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.planted import in_contract
from pytest_dsocr.families import DEFAULT
from suites.contract.hints import of_count, of_grid, of_pixels, of_prompt

TOKENIZER = resolve(MINI).tokenizer
PROMPT = " <image>\n<|grounding|>Convert the document to markdown. "


@pytest.mark.parametrize(
    ("size_px", "grid", "words"),
    [
        ((2000, 1000), (2, 4), "columns and rows of the grid exchanged"),
        ((640, 641), (1, 1), "only pages cut both of whose sides are above 640 px"),
        ((2240, 320), (6, 1), "at most 6 crops"),
    ],
)
def test_a_grid_is_laid_to_the_rule_that_gives_it(size_px: tuple[int, int], grid: tuple[int, int], words: str) -> None:
    [hint] = of_grid(size_px, grid)
    assert words in hint
    assert [*of_grid((640, 640), (1, 1))] == []


@pytest.mark.parametrize("name", ["no-bos", "special-as-text", "text-first", "not-stripped"])
def test_a_prompt_is_laid_to_what_gives_its_ids(name: str) -> None:
    one = mistakes()[f"prompt.{name}"]
    page = Image.new("RGB", (900, 900))
    with in_contract(one):
        ids = DEFAULT.prepare([page], PROMPT, "gundam", TOKENIZER).input_ids[0].tolist()
    [hint] = of_prompt(ids, PROMPT, TOKENIZER)
    assert one.words in hint
    right = DEFAULT.prepare([page], PROMPT, "gundam", TOKENIZER).input_ids[0].tolist()
    assert one.words not in " ".join(of_prompt(right, PROMPT, TOKENIZER))


@pytest.mark.parametrize("name", ["opened-bgr", "squashed", "opened-jpeg"])
def test_pixels_are_laid_to_what_makes_them(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    Image.merge("RGB", [Image.effect_noise((300, 200), 90) for _ in "rgb"]).save(page)
    one = mistakes()[f"pixels.{name}"]
    with in_contract(one):
        made = DEFAULT.prepare(page, "markdown", "base", TOKENIZER).images_ori
    vendors = DEFAULT.prepare(page, "markdown", "base", TOKENIZER).images_ori
    [hint] = of_pixels("images_ori", made, vendors, page, "base", TOKENIZER)
    assert one.words in hint
    assert "rounding" in next(of_pixels("images_ori", vendors.float() + 1e-4, vendors, page, "base", TOKENIZER))


def test_a_number_of_image_tokens_is_laid_to_what_gives_it(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    Image.new("RGB", (900, 1300)).save(page)
    one = mistakes()["prompt.counts-no-separator"]
    with in_contract(one):
        ids = DEFAULT.prepare(page, "markdown", "gundam", TOKENIZER).input_ids[0].tolist()
    [hint] = of_count(page, ids.count(TOKENIZER.special.image), TOKENIZER)
    assert one.words in hint
