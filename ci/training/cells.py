"""Which vision token sees which part of a page, and what training asks of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ci.training.page import Rect
from pytest_dsocr.contract.presets import CROP_PX, Grid, Preset

CELL_PX = 64
"""Side of the square of a view that one vision token stands for."""
CROP_CELLS = CROP_PX // CELL_PX
"""Cells along a side of a crop."""


@dataclass(frozen=True)
class Cells:
    """A raster over the page. Its tokens lie row by row from ``first`` on, each row ended by a newline."""

    columns: int
    rows: int
    first: int
    columns_per_px: float
    rows_per_px: float
    left: float = 0.0
    """Cells left of the page, where it is padded."""
    top: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of the raster, newlines included."""
        return self.rows * (self.columns + 1)

    def place(self, x_px: float, y_px: float) -> tuple[int, int]:
        """Give the column and row of the cell over a point of the page."""
        column = int(self.left + x_px * self.columns_per_px)
        row = int(self.top + y_px * self.rows_per_px)
        return min(max(column, 0), self.columns - 1), min(max(row, 0), self.rows - 1)

    def token(self, column: int, row: int) -> int:
        """Give the index of a cell's token among the image's."""
        return self.first + row * (self.columns + 1) + column

    def centre(self, rect: Rect) -> tuple[int, int]:
        """Give the column and row of the cell over the middle of ``rect``."""
        return self.place((rect.x1 + rect.x2) / 2, (rect.y1 + rect.y2) / 2)

    def touched(self, rect: Rect) -> Iterator[tuple[int, int]]:
        """Give column and row of every cell that ``rect`` reaches into."""
        left, top = self.place(rect.x1, rect.y1)
        right, bottom = self.place(rect.x2, rect.y2)
        return ((column, row) for row in range(top, bottom + 1) for column in range(left, right + 1))

    def is_inside(self, place: tuple[int, int], rect: Rect) -> bool:
        """Say whether the middle of the cell at column and row ``place`` is in ``rect``."""
        x_px = (place[0] + 0.5 - self.left) / self.columns_per_px
        y_px = (place[1] + 0.5 - self.top) / self.rows_per_px
        return rect.x1 <= x_px < rect.x2 and rect.y1 <= y_px < rect.y2

    def edges(self, place: tuple[int, int], rect: Rect) -> list[float]:
        """Give the sides of ``rect`` as seen from the cell at column and row ``place``: from its left and top, in
        cells, none farther than half a cell outside."""
        x, y = self.left - place[0], self.top - place[1]
        sides = (
            x + rect.x1 * self.columns_per_px,
            y + rect.y1 * self.rows_per_px,
            x + rect.x2 * self.columns_per_px,
            y + rect.y2 * self.rows_per_px,
        )
        return [min(max(side, -0.5), 1.5) for side in sides]


def crop_cells(size: tuple[int, int], grid: Grid) -> Cells:
    """Give the raster of the crops' tokens over a page of ``size`` pixels."""
    columns, rows = grid[0] * CROP_CELLS, grid[1] * CROP_CELLS
    return Cells(columns, rows, 0, columns / size[0], rows / size[1])


def page_cells(size: tuple[int, int], preset: Preset, first: int) -> Cells:
    """Give the raster of the whole view's tokens, the first of which is ``first``."""
    side = preset.view_size // CELL_PX
    if preset.is_squashed:
        return Cells(side, side, first, side / size[0], side / size[1])
    per_px = side / max(size)
    left, top = ((side - length * per_px) / 2 for length in size)
    return Cells(side, side, first, per_px, per_px, left, top)
