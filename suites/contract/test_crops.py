"""Crops: the page stretched over its grid, and cut row by row."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .hints import LARGE, hinted

pytestmark = pytest.mark.dsocr_level("L1")

CENTRE_PX = 320
WHITE = 1.0


@pytest.mark.parametrize("page", ["portrait", "landscape", "641_high", "641_wide", "screen"])
def test_every_bit(
    page: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from .pixels import compare_pixels

    compared = compare_pixels("images_crop", asked, drawn(page), "gundam", facts.prepared(page, "gundam"), tokenizer)
    dsocr_check([facts.told(compared)])


def test_a_large_page_is_not_shrunk_before_it_is_cut(
    facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from .pixels import compare_pixels

    recorded = facts.prepared("panorama", "gundam")
    compared = compare_pixels("images_crop", asked, drawn("panorama"), "gundam", recorded, tokenizer)
    dsocr_check([hinted(facts.told(compared), lambda: iter([LARGE]))])


@pytest.mark.parametrize("grid", [(3, 2), (2, 3), (3, 3), (4, 2)], ids=lambda grid: f"{grid[0]}x{grid[1]}")
def test_order(grid: tuple[int, int], asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    """Crop k shows tile k of a page that is painted row by row, each tile in a colour of its own."""
    from .pages import tile_colour

    columns, rows = grid
    crops = asked.tensors(drawn.painted(columns, rows))["images_crop"]
    levels = ((crops[:, :, CENTRE_PX, CENTRE_PX].float() + 1) * 127.5).round().int()
    tiles = {tile_colour(tile): tile for tile in range(columns * rows)}
    shown = [tiles.get((red, green, blue), (red, green, blue)) for red, green, blue in levels.tolist()]
    dsocr_check([as_expected("images_crop", shown, list(range(columns * rows)), "tiles row by row, as the crops show")])


@pytest.mark.parametrize("size_px", [(5000, 600), (1225, 490), (700, 1358)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_stretched_and_not_padded(size_px: tuple[int, int], asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    darkest = float(asked.tensors(drawn.blank(*size_px))["images_crop"].min())
    dsocr_check([as_expected("images_crop", darkest, WHITE, "the darkest pixel of a white page")])


def test_crops_are_zeros_where_there_are_none(asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    """The vendor's code tells by their sum that there are none."""
    largest = float(asked.tensors(drawn("tiny"))["images_crop"].abs().max())
    dsocr_check([as_expected("images_crop", largest, 0.0, "the largest value, of a page that is not cut")])
