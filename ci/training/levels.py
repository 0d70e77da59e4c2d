"""The contract's views, cut on the device: resampling is two products of matrices there, and not a core's work.

Pillow's weights are rounded, so that its levels differ by one or two in a few pixels. Pillow 13 resizes the columns of
a tall page before its lines, where older ones and this module begin with the lines: up to a dozen levels, in a pixel
of a hundred.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.contract.image import GREY
from pytest_dsocr.contract.inputs import WHITE
from pytest_dsocr.contract.presets import CROP_PX, Grid, Preset, crop_count


def crop_levels(page: Tensor, grid: Grid) -> Tensor:
    """Stretch a page ``[3, height, width]`` over ``grid`` and cut it: uint8 ``[P, 3, 640, 640]``."""
    if not crop_count(grid):
        return page.new_empty((0, 3, CROP_PX, CROP_PX))
    columns, rows = grid
    stretched = stretch(page, columns * CROP_PX, rows * CROP_PX)
    tiles = stretched.unflatten(2, (columns, CROP_PX)).unflatten(1, (rows, CROP_PX))
    crops: Tensor = tiles.permute(1, 3, 0, 2, 4).flatten(0, 1)
    return crops


def whole_levels(page: Tensor, preset: Preset) -> Tensor:
    """Put a page ``[3, height, width]`` into the preset's square: uint8 ``[3, V, V]``."""
    side = preset.view_size
    if preset.is_squashed:
        return stretch(page, side, side)
    _, height, width = page.shape
    per_px = side / max(height, width)
    fitted = stretch(page, round(width * per_px), round(height * per_px))
    view = page.new_full((3, side, side), GREY[0])
    top, left = (round((side - length) / 2) for length in fitted.shape[1:])
    view[:, top : top + fitted.shape[1], left : left + fitted.shape[2]] = fitted
    return view


def stretch(page: Tensor, width: int, height: int) -> Tensor:
    """Resize levels ``[3, h, w]`` bicubically, antialiased, to uint8 ``[3, height, width]``."""
    dtype = torch.float16 if page.is_cuda else torch.float32
    down = _resampling(page.shape[1], height, page.device, dtype)
    across = _resampling(page.shape[2], width, page.device, dtype)
    wide = (page.to(dtype) @ across.T).round_().clamp_(0, WHITE)
    return (down @ wide).round_().clamp_(0, WHITE).to(torch.uint8)


@lru_cache(maxsize=512)
def _resampling(from_px: int, to_px: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Give the matrix that resizes a line of pixels: ``[to_px, from_px]``."""
    ones = torch.eye(from_px, device=device)[None, None]
    return F.interpolate(ones, size=(to_px, from_px), mode="bicubic", antialias=True)[0, 0].to(dtype)
