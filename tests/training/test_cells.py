"""Cells of vision tokens: counted and placed by hand."""

from __future__ import annotations

import pytest

from ci.training.cells import Cells, crop_cells, page_cells
from ci.training.generator import GRIDS
from ci.training.page import Rect
from pytest_dsocr.contract.presets import PRESETS, Grid, image_token_count

WIDE = page_cells((1024, 512), PRESETS["base"], 100)
"""16 x 16 cells of which the page has the middle 8 rows, 64 px of it to a cell."""


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", PRESETS)
def test_the_rasters_hold_every_image_token_but_the_separator(name: str, grid: Grid) -> None:
    preset = PRESETS[name]
    crops = crop_cells((700, 900), grid).tokens if preset.crop and grid != (1, 1) else 0
    whole = page_cells((700, 900), preset, crops)
    assert whole.token(0, 0) == crops
    assert crops + whole.tokens + 1 == image_token_count(preset, grid if preset.crop else (1, 1))


@pytest.mark.parametrize(
    ("cells", "point", "place"),
    [
        (WIDE, (0, 0), (0, 4)),
        (WIDE, (1023, 511), (15, 11)),
        (WIDE, (64, 63.9), (1, 4)),
        (WIDE, (5000, -900), (15, 0)),
        (page_cells((512, 1024), PRESETS["base"], 0), (0, 0), (4, 0)),
        (page_cells((512, 1024), PRESETS["tiny"], 0), (511, 512), (7, 4)),
        (page_cells((600, 300), PRESETS["large"], 0), (300, 0), (10, 5)),
        (crop_cells((500, 1000), (2, 3)), (250, 999), (10, 29)),
    ],
)
def test_a_point_has_its_cell(cells: Cells, point: tuple[float, float], place: tuple[int, int]) -> None:
    assert cells.place(*point) == place


def test_a_row_of_tokens_ends_in_a_newline() -> None:
    assert [WIDE.token(0, 0), WIDE.token(15, 0), WIDE.token(0, 1), WIDE.token(3, 2)] == [100, 115, 117, 137]


def test_what_a_rect_touches_and_where_its_middle_is() -> None:
    rect = Rect(60, 10, 130, 70)
    assert [*WIDE.touched(rect)] == [(0, 4), (1, 4), (2, 4), (0, 5), (1, 5), (2, 5)]
    assert WIDE.centre(rect) == (1, 4)
    assert [WIDE.is_inside(place, rect) for place in WIDE.touched(rect)] == [False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("place", "edges"),
    [
        ((1, 4), [-0.0625, 0.15625, 1.03125, 1.09375]),
        ((2, 5), [-0.5, -0.5, 0.03125, 0.09375]),
        ((0, 4), [0.9375, 0.15625, 1.5, 1.09375]),
    ],
)
def test_edges_as_a_cell_sees_them(place: tuple[int, int], edges: list[float]) -> None:
    assert WIDE.edges(place, Rect(60, 10, 130, 70)) == edges
