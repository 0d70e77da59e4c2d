"""The crop grid, against the vendor's own choices."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from pytest_dsocr.contract.presets import Grid, crop_grid
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from tests.contract.recorded_inputs import RECORDED


def test_grids_are_the_vendors() -> None:
    table = RECORDED["grids"]
    assert len(table) >= 80
    assert {tuple(row[2:]) for row in table} == set(DEFAULT.tiling.grids), (
        "some grid is never chosen, so it compares nothing"
    )
    mine = [[width, height, *crop_grid(width, height, DEFAULT.tiling)] for width, height, *_ in table]
    assert mine == table


@pytest.mark.parametrize(
    ("width", "height", "grid"),
    [
        (1, 1, (1, 1)),
        (640, 640, (1, 1)),
        (641, 640, (2, 2)),
        (640, 641, (2, 2)),
        (5000, 600, (8, 1)),
        (600, 5000, (1, 8)),
        (1240, 1754, (2, 3)),
        (1920, 1080, (4, 2)),  # where a limit of six crops would give (2, 1)
        (1500, 1500, (3, 3)),
        (1357, 1357, (2, 2)),  # as near as 3 x 3, but with less than half its pixels
        (1358, 1358, (3, 3)),
        (1250, 1000, (3, 2)),  # between 1 and 3/2
        (1200, 960, (2, 2)),
    ],
)
def test_named_sizes(width: int, height: int, grid: Grid) -> None:
    assert crop_grid(width, height, DEFAULT.tiling) == grid


def test_all_grids_of_two_to_nine_crops_are_candidates() -> None:
    every = {(i, j) for i, j in itertools.product(range(1, 10), repeat=2) if 2 <= i * j <= 9}
    assert len(DEFAULT.tiling.grids) == len(every) == 22
    assert set(DEFAULT.tiling.grids) == every


def test_the_order_among_equal_numbers_of_crops_decides_nothing() -> None:
    """The vendor's order there is a set's, so a tie between two such grids would be chance.

    Two of them are equally near only to a ratio half-way between theirs, and there another grid is nearer than both.
    """
    pairs = [(a, b) for a, b in itertools.combinations(DEFAULT.tiling.grids, 2) if a[0] * a[1] == b[0] * b[1]]
    assert len(pairs) == 22
    for a, b in pairs:
        middle = (Fraction(*a) + Fraction(*b)) / 2
        nearest = min(abs(middle - Fraction(*grid)) for grid in DEFAULT.tiling.grids)
        assert nearest < abs(middle - Fraction(*a)) - Fraction(1, 100), (a, b)


@pytest.mark.parametrize(("width", "height"), [(0, 100), (100, 0), (-5, 700)])
def test_a_page_without_pixels_is_refused(width: int, height: int) -> None:
    with pytest.raises(DsocrError, match=f"{width} x {height} has no pixels"):
        crop_grid(width, height, DEFAULT.tiling)
