"""Where each vision token goes, shown by tokens that carry their own place."""

from __future__ import annotations

import pytest
import torch

from pytest_dsocr.engine.fusion import fuse, mosaic, scatter
from pytest_dsocr.foundation.errors import DsocrError

NEWLINE, SEPARATOR = torch.tensor([-1.0]), torch.tensor([-2.0])


def crops_of(columns: int, rows: int, side: int) -> torch.Tensor:
    """Crops of a page whose token at row r, column c is 100 r + c."""
    page = 100 * torch.arange(rows * side)[:, None] + torch.arange(columns * side)
    tiles = [
        page[r * side : (r + 1) * side, c * side : (c + 1) * side].flatten()
        for r in range(rows)
        for c in range(columns)
    ]
    return torch.stack(tiles)[..., None].float()


@pytest.mark.parametrize(("columns", "rows"), [(2, 3), (3, 2), (1, 4), (4, 1), (3, 3)])
def test_mosaic_is_the_page(columns: int, rows: int) -> None:
    whole = mosaic(crops_of(columns, rows, side=2), (columns, rows))[..., 0]
    expected = 100 * torch.arange(2 * rows)[:, None] + torch.arange(2 * columns)
    assert torch.equal(whole, expected.float())


def test_crops_come_first_rows_end_by_newline_and_the_separator_is_last() -> None:
    page = 1000 + torch.arange(4.0)[:, None]
    fused = fuse(crops_of(2, 1, side=2), page, (2, 1), NEWLINE, SEPARATOR)[:, 0].tolist()
    crop_rows = [0, 1, 2, 3, -1, 100, 101, 102, 103, -1]
    page_rows = [1000, 1001, -1, 1002, 1003, -1]
    assert fused == [*crop_rows, *page_rows, -2]


@pytest.mark.parametrize("features", [1, 3])
def test_scatter_refuses_too_few_and_too_many(features: int) -> None:
    mask = torch.tensor([[False, True, False, True]])
    with pytest.raises(DsocrError, match=rf"2 image tokens and vision gave {features} features"):
        scatter(torch.zeros(1, 4, 1), mask, torch.zeros(features, 1), expected=2)
