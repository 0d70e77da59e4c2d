"""Other rules for the grid of a page than the vendor's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log

from pytest_dsocr.base.words import count
from pytest_dsocr.contract.presets import Grid, Tiling, candidates

GridRule = Callable[[int, int, Tiling], Grid]
"""Choose the grid of a page from its width and height."""
GridDistance = Callable[[float, Grid], float]
"""Return the distance of a grid from a page's width over its height."""


def _rounded(page_digits: int, grid_digits: int = 99) -> GridDistance:
    return lambda ratio, grid: abs(round(ratio, page_digits) - round(grid[0] / grid[1], grid_digits))


NEARNESS: dict[str, tuple[str, GridDistance]] = {
    "log": ("by the ratio of ratios, not by their difference", lambda ratio, grid: abs(log(ratio * grid[1] / grid[0]))),
    "inverse": ("by height over width", lambda ratio, grid: abs(1 / ratio - grid[1] / grid[0])),
    **{f"rounded-{n}": (f"by ratios rounded to {count(n, 'digit')}", _rounded(n, n)) for n in (1, 2, 3)},
    **{f"page-rounded-{n}": (f"by the page's ratio rounded to {count(n, 'digit')}", _rounded(n)) for n in (1, 2, 3)},
}


def nearest(
    width: int,
    height: int,
    tiling: Tiling,
    *,
    most: int = 0,
    least: int = 2,
    tie: str = "area",
    swapped: bool = False,
    limit: int | None = None,
    margin: int = 0,
    both: bool = False,
    by: GridDistance = lambda ratio, grid: abs(ratio - grid[0] / grid[1]),
) -> Grid:
    """Choose a grid by another rule than the vendor's, which is that of the defaults.

    Args:
        width: of the page, in pixels.
        height: of the page, in pixels.
        tiling: how the model cuts pages.
        most: the most crops, if not the model's.
        least: the fewest crops of a page that is cut.
        tie: which of two grids that are equally near is chosen.
        swapped: exchange columns and rows.
        limit: the longest side of a page that is not cut, if not a crop's.
        margin: pixels by which that side is shorter.
        both: cut a page only if both of its sides are too long.
        by: how far a grid is from a page's shape.
    """
    crop_px = tiling.crop_px
    if (min if both else max)(width, height) <= (crop_px if limit is None else limit) - margin:
        return 1, 1
    found = candidates(most or tiling.most, least)
    best, least_apart = found[0], float("inf")
    for grid in found:
        apart = by(width / height, grid)
        half = width * height > 0.5 * crop_px**2 * grid[0] * grid[1]
        if apart < least_apart or (apart == least_apart and {"area": half, "first": False, "last": True}[tie]):
            best, least_apart = grid, apart
    return best[::-1] if swapped else best


def _ceil(width: int, height: int, tiling: Tiling) -> Grid:
    """Return the grid of the crops that the sides hold, within the limit."""
    columns, rows = (max(1, -(-side // tiling.crop_px)) for side in (width, height))
    while columns * rows > tiling.most:
        columns, rows = (columns - 1, rows) if columns > rows else (columns, rows - 1)
    return columns, rows


GRIDS: dict[str, tuple[str, GridRule]] = {
    "exchanged": ("columns and rows of the grid exchanged", partial(nearest, swapped=True)),
    **{name: (f"at most {n} crops", partial(nearest, most=n)) for name, n in (("six", 6), ("twelve", 12), ("four", 4))},
    "tie-first": ("the first of grids that are equally near", partial(nearest, tie="first")),
    "tie-last": ("the last of grids that are equally near", partial(nearest, tie="last")),
    "both-sides": ("only pages cut both of whose sides are above {crop} px", partial(nearest, both=True)),
    "always": ("pages cut that fit into one crop", partial(nearest, limit=0)),
    "never": ("no page cut", lambda *_: (1, 1)),
    "from-one": ("a grid of one crop among those to choose from", partial(nearest, least=1)),
    "ceil": ("a grid of as many crops as the page's sides hold, rounded up", _ceil),
    "limit-1024": ("pages of up to 1024 px not cut", partial(nearest, limit=1024)),
    "limit-639": ("pages of exactly {crop} px cut", partial(nearest, margin=1)),
    **{key: (f"the grid nearest {words}", partial(nearest, by=by)) for key, (words, by) in NEARNESS.items()},
    **{
        f"always-{tie}": (
            f"pages cut that fit into one crop, by the {tie} grid of those equally near",
            partial(nearest, limit=0, tie=tie),
        )
        for tie in ("first", "last")
    },
    **{f"most-{n}": (f"at most {n} crops", partial(nearest, most=n)) for n in (2, 3, 5, *range(7, 12), 16, 20, 24, 32)},
}
