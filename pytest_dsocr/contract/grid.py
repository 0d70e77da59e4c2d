"""How many crops a page is cut into: the one place that decides it."""

from __future__ import annotations

import math
from functools import cache

from pytest_dsocr.foundation.errors import DsocrError

CROP_PX = 640
"""Side of a crop; a page that fits into one is not cut."""
MIN_CROPS = 2
MAX_CROPS = 9

Grid = tuple[int, int]
"""Columns and rows of crops."""


@cache
def candidates(most: int) -> tuple[Grid, ...]:
    """Give the grids of up to ``most`` crops, fewest first."""
    sides = range(1, most + 1)
    grids = ((columns, rows) for columns in sides for rows in sides if MIN_CROPS <= columns * rows <= most)
    return tuple(sorted(grids, key=math.prod))


CANDIDATES = candidates(MAX_CROPS)
"""The grids in the order in which the vendor tries them. Its order among equal numbers of crops is a set's, which
no page's choice depends on."""


def crop_count(grid: Grid) -> int:
    """Count the crops of ``grid``: none for ``(1, 1)``, where the page is not cut."""
    columns, rows = grid
    return 0 if columns * rows == 1 else columns * rows


def crop_grid(width_px: int, height_px: int, *, most: int = MAX_CROPS) -> Grid:
    """Give the columns and rows that a page of this size is cut into; ``(1, 1)`` is no cut.

    The grid whose aspect ratio is nearest to the page's. Of grids equally near, a larger one is taken if the page
    has more than half of its pixels.

    Args:
        width_px: the page's width.
        height_px: its height.
        most: the limit of crops; ports have others than the vendor.

    Raises:
        DsocrError: where the page has no pixels.
    """
    if width_px < 1 or height_px < 1:
        raise DsocrError(f"a page of {width_px} x {height_px} has no pixels; give one that has some")
    if width_px <= CROP_PX and height_px <= CROP_PX:
        return 1, 1
    grids = candidates(most)
    best, least = grids[0], math.inf
    for grid in grids:
        columns, rows = grid
        distance = abs(width_px / height_px - columns / rows)
        more_than_half = width_px * height_px > 0.5 * CROP_PX**2 * columns * rows
        if distance < least or (distance == least and more_than_half):
            best, least = grid, distance
    return best
