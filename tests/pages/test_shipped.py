"""The shipped pages: that their truth is read as it was written, and that they are what the code makes."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ci.training import make_pages as making
from ci.training.generator import GRIDS
from ci.training.kinds import KINDS
from ci.training.lexicon import LABELS
from ci.training.make_pages import GENERATED_SEEDS, MANIFEST, MANY_CROPS, versions, write_page
from ci.training.page import Block, Page, Rect, Word
from ci.training.seeds import HELD_OUT_SEEDS
from ci.training.truth import load_truth, truth_of
from ci.training.typeset import SETTINGS, typeset
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.presets import crop_grid
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import PAGES, SUBSETS, read_list, shipped

MOST_BYTES = 4_000_000
INK_LEVELS = 40
MADE_WITH = json.loads((PAGES / MANIFEST).read_text(encoding="utf-8"))["made_with"]

every_page = pytest.mark.parametrize("path", shipped("all"), ids=lambda path: path.stem)


drawn, printed = cache(making.made), cache(typeset)


def made_anew(path: Path) -> Page:
    seed = re.search(r"\d+$", path.stem)
    return drawn(int(seed[0])) if seed else printed(path.stem)


def shrunk(page: Page) -> Page:
    """Give it with an image that is written at once."""
    return replace(page, image=page.image.resize((9, 9)))


def differing(*names: str) -> dict[str, Any]:
    return {
        name: f"{MADE_WITH[name]}, here {versions()[name]}" for name in names if MADE_WITH[name] != versions()[name]
    }


def small_page() -> Page:
    image = Image.new("RGB", (60, 40), "white")
    image.paste((10, 20, 30), (10, 10, 30, 20))
    word = Word("Süß", Rect(10, 10, 30, 20))
    blocks = (
        Block("text", (Rect(8.126, 8, 32, 22), Rect(0, 30, 5, 40)), "Süß", (word,)),
        Block("image", (Rect(40, 0, 60, 40),), "", ()),
    )
    return Page("note", 7, image, blocks)


def test_subsets_are_what_their_names_say() -> None:
    assert {name: len(shipped(name)) for name in SUBSETS} == {"dev-3": 3, "dev-20": 20, "typeset": 12, "all": 34}
    assert set(shipped("dev-3")) < set(shipped("dev-20"))
    assert set(shipped("all")) > {*shipped("dev-20"), *shipped("typeset")}
    assert [path.stem for path in shipped("typeset")] == list(SETTINGS)


def test_every_page_there_is_on_a_list_and_has_a_name_of_its_own() -> None:
    assert sorted(PAGES.glob("*/*.png")) == sorted(shipped("all"))
    assert {path.stem for path in PAGES.glob("*/*.json")} == {path.stem for path in shipped("all")}
    assert len({path.stem for path in shipped("all")}) == 34


def test_there_are_two_generated_pages_of_each_kind_and_every_grid() -> None:
    pages = [load_truth(path) for path in shipped("dev-20")]
    assert Counter(page.kind for page in pages) == {kind: 2 for kind in KINDS if kind != "note"}
    assert {crop_grid(*page.image.size) for page in pages} == {*GRIDS, (3, 3), (4, 2)}
    assert {block.label for page in pages for block in page.blocks} == set(LABELS)
    assert {*GENERATED_SEEDS, *MANY_CROPS} <= set(HELD_OUT_SEEDS)


def test_quick_pages_are_quick_and_differ() -> None:
    pages = [load_truth(path) for path in shipped("dev-3")]
    assert len({page.kind for page in pages}) == len({crop_grid(*page.image.size) for page in pages}) == 3
    assert all(sum(len(block.words) for block in page.blocks) <= 40 for page in pages)


def test_all_together_are_small() -> None:
    assert sum(file.stat().st_size for file in PAGES.rglob("*") if file.is_file()) <= MOST_BYTES


@every_page
def test_the_truth_is_on_the_page(path: Path) -> None:
    page = load_truth(path)
    markup = parse(page.answer(grounded=True))
    assert markup.problems == ()
    assert [span.label for span in markup.spans] == [block.label for block in page.blocks]
    width, height = page.image.size
    shades = np.asarray(page.image.convert("L"))
    for block in page.blocks:
        for rect in (*block.rects, *(word.rect for word in block.words)):
            assert 0 <= rect.x1 < rect.x2 <= width
            assert 0 <= rect.y1 < rect.y2 <= height
            x1, y1, x2, y2 = map(round, rect)
            assert np.ptp(shades[y1:y2, x1:x2]) > INK_LEVELS


@every_page
def test_a_page_says_what_the_code_makes(path: Path) -> None:
    """With whatever versions: only pixels, and places by a few of them, depend on those."""
    kept, made = load_truth(path), made_anew(path)
    assert (kept.kind, kept.seed, kept.image.size) == (made.kind, made.seed, made.image.size)
    assert kept.answer(grounded=False) == made.answer(grounded=False)
    for old, new in zip(kept.blocks, made.blocks, strict=True):
        assert old.label == new.label
        assert [word.text for word in old.words] == [word.text for word in new.words]
        for a, b in zip(old.rects, new.rects, strict=True):
            assert max(abs(x - y) for x, y in zip(a, b, strict=True)) < 12


@every_page
def test_a_page_is_to_the_pixel_what_the_code_makes(path: Path) -> None:
    generated = path.parent.name == "generated"
    if others := differing(*(("pillow", "freetype2") if generated else ("reportlab", "pypdfium2"))):
        pytest.skip(f"the pages were made with other versions: {others}")
    made = made_anew(path)
    assert truth_of(made) == json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert load_image(path).tobytes() == made.image.tobytes()


def test_making_them_anew_writes_the_same_lists_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "made", lambda seed: shrunk(drawn(seed)))
    monkeypatch.setattr(making, "typeset", lambda setting: shrunk(printed(setting)))
    lines = list(making.make_pages(tmp_path))
    assert len(lines) == 34
    assert {file.relative_to(tmp_path) for file in tmp_path.rglob("*")} == {
        file.relative_to(PAGES) for file in PAGES.rglob("*") if not file.name.startswith(".")
    }
    for name in SUBSETS:
        assert (tmp_path / f"{name}.txt").read_bytes() == (PAGES / f"{name}.txt").read_bytes()
        assert len(read_list(tmp_path / f"{name}.txt")) == len(shipped(name))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    page = small_page()
    write_page(tmp_path, "page.png", page)
    back = load_truth(tmp_path / "page.png")
    assert (back.kind, back.seed, back.image.tobytes()) == ("note", 7, page.image.tobytes())
    assert back.blocks[0].rects == (Rect(8.13, 8, 32, 22), Rect(0, 30, 5, 40))
    assert (back.blocks[0].words, back.blocks[1]) == (page.blocks[0].words, page.blocks[1])


@pytest.mark.parametrize("colours", [2, 200, 2000])
@pytest.mark.parametrize("grey", [False, True])
def test_no_colour_is_lost_in_the_smallest_of_modes(colours: int, grey: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    palette = random.integers(256, size=(colours, 1 if grey else 3)).repeat(3 if grey else 1, axis=1).astype(np.uint8)
    page = replace(small_page(), image=Image.fromarray(palette[random.integers(colours, size=(200, 200))]))
    write_page(tmp_path, "page.png", page)
    assert load_image(tmp_path / "page.png").tobytes() == page.image.tobytes()
    with Image.open(tmp_path / "page.png") as written:
        assert (written.mode == "RGB") == (colours > 256 and not grey)


@pytest.mark.parametrize(
    "truth",
    [None, "", "[]", "{}", '{"kind": "note", "seed": 1, "blocks": [{"label": "text"}]}', '{"kind": "a", "seed": 1}'],
)
def test_a_page_without_a_truth_is_refused(truth: str | None, tmp_path: Path) -> None:
    small_page().image.save(tmp_path / "page.png")
    if truth is not None:
        (tmp_path / "page.json").write_text(truth, encoding="utf-8")
    with pytest.raises(DsocrError, match=r"page\.json holds no truth of page\.png \(.+\); give a page that has one$"):
        load_truth(tmp_path / "page.png")


def test_a_subset_that_is_not_there_is_refused() -> None:
    with pytest.raises(DsocrError) as caught:
        shipped("dev-4")
    assert str(caught.value) == (
        "there is no subset 'dev-4' of the shipped pages; give one of dev-3, dev-20, typeset, all"
    )
