"""Which box of an answer stands for which of the truth: the assignment that overlaps most in all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pytest_dsocr.contract.markup import Box


def iou(a: Box, b: Box) -> float:
    """Give the area that both share over the area that they cover together, 0 to 1; a box without area shares none."""
    width, height = min(a.x2, b.x2) - max(a.x1, b.x1), min(a.y2, b.y2) - max(a.y1, b.y1)
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / (_area(a) + _area(b) - shared)


def match(scores: npt.ArrayLike) -> list[tuple[int, int]]:
    """Pair rows of ``scores`` with columns so that the sum of the pairs' scores is the largest possible.

    Args:
        scores: ``[rows, columns]``, none below 0. Rows and columns that score 0 with each other are not paired.

    Returns:
        The pairs in the order of their rows; a row or a column is in at most one.
    """
    table = np.asarray(scores, dtype=float)
    if not table.size:
        return []
    if table.shape[0] > table.shape[1]:
        return sorted((row, column) for column, row in match(table.T))
    return [(row, column) for row, column in enumerate(_assign(-table)) if table[row, column] > 0]


def overlaps(ours: Sequence[Box], theirs: Sequence[Box]) -> list[list[float]]:
    """Give the IoU of each box of ``ours`` with each of ``theirs``: ``[ours, theirs]``."""
    return [[iou(a, b) for b in theirs] for a in ours]


def _assign(costs: npt.NDArray[np.float64]) -> list[int]:
    """Give each row's column at the least total cost, by the Hungarian method; there are no more rows than columns.

    Rows and columns count from 1 here, so that 0 stands for none; prices make every reduced cost 0 or more, and that
    of every pair 0.
    """
    rows, columns = costs.shape
    padded = np.pad(costs, ((1, 0), (1, 0)), constant_values=np.inf)
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of = np.zeros(columns + 1, dtype=int)
    for row in range(1, rows + 1):
        row_of[0] = row
        _augment(padded, row_price, column_price, row_of)
    column_of = {int(row): column - 1 for column, row in enumerate(row_of) if column}
    return [column_of[row] for row in range(1, rows + 1)]


def _augment(
    costs: npt.NDArray[np.float64],
    row_price: npt.NDArray[np.float64],
    column_price: npt.NDArray[np.float64],
    row_of: npt.NDArray[np.int64],
) -> None:
    """Pair the row that waits in ``row_of[0]``, moving others along the shortest path to a free column."""
    column = 0
    slack, previous = np.full(row_of.shape, np.inf), np.zeros(row_of.shape, dtype=int)
    reached = np.zeros(row_of.shape, dtype=bool)
    while row_of[column]:
        reached[column] = True
        row = row_of[column]
        reduced = costs[row] - row_price[row] - column_price
        closer = ~reached & (reduced < slack)
        slack[closer], previous[closer] = reduced[closer], column
        nearest = int(np.where(reached, np.inf, slack).argmin())
        step = slack[nearest]
        row_price[row_of[reached]] += step
        column_price[reached] -= step
        slack[~reached] -= step
        column = nearest
    while column:
        row_of[column] = row_of[previous[column]]
        column = int(previous[column])


def _area(box: Box) -> float:
    return (box.x2 - box.x1) * (box.y2 - box.y1)
