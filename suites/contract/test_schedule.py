"""How many image tokens a page takes: one for each feature, for each row's newline, and for the separator."""

from __future__ import annotations

import pytest

from pytest_dsocr.check import Check
from pytest_dsocr.compare.expected import as_expected
from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.special import TextTokenizer

from .asked import Asked, Drawn
from .facts import Facts

pytestmark = pytest.mark.level("L1")

RECORDED = [
    *(("square", preset) for preset in ("tiny", "small", "base", "large")),
    *((page, "gundam") for page in ("tiny", "landscape", "square", "portrait", "palette", "screen")),
]
SIZE_OF_GRID = {
    (1, 2): (600, 1200),
    (1, 3): (320, 905),
    (1, 4): (320, 1200),
    (1, 5): (1000, 5000),
    (1, 6): (320, 1754),
    (1, 7): (700, 5000),
    (1, 8): (320, 2480),
    (1, 9): (320, 5000),
    (2, 1): (1225, 490),
    (2, 2): (641, 640),
    (2, 3): (1000, 1250),
    (2, 4): (906, 1812),
    (3, 1): (1300, 520),
    (3, 2): (1250, 1000),
    (3, 3): (1358, 1358),
    (4, 1): (1200, 320),
    (4, 2): (1812, 906),
    (5, 1): (1754, 320),
    (6, 1): (5000, 905),
    (7, 1): (5000, 700),
    (8, 1): (5000, 600),
    (9, 1): (5000, 320),
}
"""Of each grid a page that the vendor's code cuts so, as its recorded table says."""
PAGE_SIDE, CROP_SIDE = 16, 10
"""Tokens along a side of Gundam's view of the page, and of a crop."""


@pytest.mark.parametrize(("page", "preset"), RECORDED, ids=map("-".join, RECORDED))
def test_as_recorded(page: str, preset: str, facts: Facts, asked: Asked, drawn: Drawn, dsocr_check: Check) -> None:
    [(_, count)] = [run for run in facts.prepared(page, preset).images_seq_mask if run[0]]
    dsocr_check([_count(asked(drawn(page), preset).images_seq_mask, count, preset)])


@pytest.mark.parametrize("grid", SIZE_OF_GRID, ids=lambda grid: f"{grid[0]}x{grid[1]}")
def test_every_grid(
    grid: tuple[int, int], asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from pytest_dsocr.contract.schedule import image_token_count

    inputs = asked(drawn.blank(*SIZE_OF_GRID[grid]))
    expected = image_token_count(PRESETS["gundam"], grid)
    found = inputs.prompt_ids.count(tokenizer.special.image)
    why = f"image ids of the page's view and of {grid[0]} x {grid[1]} crops{_resembling(found, grid)}"
    dsocr_check([as_expected("input_ids", found, expected, why), _count(inputs.images_seq_mask, expected, "gundam")])


def _count(mask: tuple[tuple[int, int], ...], expected: int, preset: str) -> Comparison:
    found = sum(length for value, length in mask if value)
    return as_expected("images_seq_mask", found, expected, f"image tokens in {preset}")


def _resembling(found: int, grid: tuple[int, int]) -> str:
    """Name the usual mistake that gives so many."""
    columns, rows = grid
    page, crops = PAGE_SIDE**2, CROP_SIDE**2 * columns * rows
    newlines = PAGE_SIDE + CROP_SIDE * rows
    mistakes = {
        page + crops + 1: "no newlines",
        page + crops + newlines: "no separator",
        page + crops + PAGE_SIDE + CROP_SIDE * columns * rows + 1: "a newline for each row of each crop",
        page + crops + PAGE_SIDE + CROP_SIDE * columns + 1: "columns and rows exchanged",
        page + PAGE_SIDE + 1: "no crops",
    }
    right = page + crops + newlines + 1
    return f"; as many as with {mistakes[found]}" if found in mistakes and found != right else ""
