"""Match boxes of one side with boxes of the other so that they overlap as much as possible in total."""

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
    return [(row, column) for row, column in assign(-table) if table[row, column] > 0] if table.size else []


def assign(costs: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pair rows of ``costs`` with columns at the least total cost, as many as the shorter side has.

    Args:
        costs: ``[rows, columns]``, finite.

    Returns:
        The pairs in the order of their rows.
    """
    from scipy.optimize import linear_sum_assignment  # takes longer to import than a page to compare

    rows, columns = linear_sum_assignment(costs)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def overlaps(ours: Sequence[Box], theirs: Sequence[Box]) -> list[list[float]]:
    """Give the IoU of each box of ``ours`` with each of ``theirs``: ``[ours, theirs]``."""
    return [[iou(a, b) for b in theirs] for a in ours]


def _area(box: Box) -> float:
    return (box.x2 - box.x1) * (box.y2 - box.y1)
