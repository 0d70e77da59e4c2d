"""The shipped pages: those that recordings were made of, each with its truth beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ci.training.page import load_page
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.presets import crop_grid
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import PAGES, SUBSETS, shipped

MOST_BYTES = 4_000_000
INK_LEVELS = 40
SHA256 = "5446d4716dc83e250ad4fd1a0d2b5e982ad557714bec90fb13a97a7f0a79b84b"
"""Of every file's name and bytes: recordings are of these pages and no others."""

every_page = pytest.mark.parametrize("path", shipped("all"), ids=lambda path: path.stem)


def test_their_bytes_are_those_that_were_recorded() -> None:
    found = hashlib.sha256()
    for path in sorted(path for path in PAGES.rglob("*") if path.suffix in (".png", ".json", ".txt")):
        found.update(path.relative_to(PAGES).as_posix().encode() + path.read_bytes())
    assert found.hexdigest() == SHA256


def test_subsets_are_what_their_names_say() -> None:
    assert {name: len(shipped(name)) for name in SUBSETS} == {"dev-3": 3, "dev-20": 20, "typeset": 12, "all": 34}
    assert set(shipped("dev-3")) < set(shipped("dev-20"))
    assert set(shipped("all")) > {*shipped("dev-20"), *shipped("typeset")}


def test_every_page_there_is_on_a_list_and_has_a_name_of_its_own() -> None:
    assert sorted(PAGES.glob("*/*.png")) == sorted(shipped("all"))
    assert {path.stem for path in PAGES.glob("*/*.json")} == {path.stem for path in shipped("all")}
    assert len({path.stem for path in shipped("all")}) == 34


def test_every_grid_is_among_them() -> None:
    grids = {crop_grid(*load_page(path).image.size) for path in shipped("dev-20")}
    assert grids == {(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 2)}


def test_quick_pages_are_quick_and_differ() -> None:
    pages = [load_page(path) for path in shipped("dev-3")]
    assert (
        len({page.kind for page in pages}) == len({crop_grid(*page.image.size, DEFAULT.tiling) for page in pages}) == 3
    )
    assert all(sum(len(block.words) for block in page.blocks) <= 40 for page in pages)


def test_all_together_are_small() -> None:
    assert sum(file.stat().st_size for file in PAGES.rglob("*") if file.is_file()) <= MOST_BYTES


@every_page
def test_the_truth_is_on_the_page(path: Path) -> None:
    page = load_page(path)
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


def test_a_subset_that_is_not_there_is_refused() -> None:
    with pytest.raises(DsocrError) as caught:
        shipped("dev-4")
    assert str(caught.value) == (
        "there is no subset 'dev-4' of the shipped pages; give one of dev-3, dev-20, typeset, all"
    )
