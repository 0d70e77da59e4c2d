"""Pixels of a page that was resized before: they are made again in each way, and compared.

Shapes: N views, 3 colours, H x W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract.image import global_view
from pytest_dsocr.contract.presets import Grid, Preset, crop_count
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.ids import LIMITS_PX

FILTERS = ("bicubic", "lanczos", "bilinear", "box", "nearest", "hamming")
NO_CROPS = (1, 1)
FITTED = 1
"""Colour by which a way is chosen: green."""
TINY = 1e-9


class Source(NamedTuple):
    """The page of some views."""

    page: Image.Image
    """Page in RGB, loaded by the contract."""
    preset: Preset
    is_view: bool
    """Whether the views show the whole page; otherwise they are its crops."""


class _Way(NamedTuple):
    text: str
    page: Image.Image
    """The page that is seen."""
    grid: Grid
    """Columns and rows of its crops."""


def resized(actual: Tensor, expected: Tensor, source: Source) -> Description | None:
    """Describe views of a page that was resized before, by the way that comes nearest.

    The way is found on one colour, and verified on all.

    Args:
        actual: the subject's levels ``[N, 3, H, W]``.
        expected: the expected levels, of any number of views.
        source: the page.
    """

    def left(way: _Way) -> float:
        made = _made(way, way.page.split()[FITTED], source)
        return float((actual[:, FITTED] - made).norm()) if made.shape == actual[:, FITTED].shape else math.inf

    found = [(left(way), way) for way in _of_source(source)]
    limits = [
        (left(way), limit, way)
        for limit in LIMITS_PX
        if limit < max(source.page.size)
        for way in [_shrunk(source, limit, FILTERS[0])]
    ]
    if limits:
        _, nearest, _ = min(limits, key=lambda one: one[0])
        found += [(apart, way) for apart, _, way in limits]
        found += [(left(way), way) for name in FILTERS[1:] for way in [_shrunk(source, nearest, name)]]
    if not found:
        return None
    apart, way = min(found, key=lambda one: one[0])
    if math.isinf(apart):
        return None
    made = torch.stack([_made(way, one, source) for one in way.page.split()], 1)
    right = expected if expected.shape == actual.shape else actual.mean()
    share = 1 - float((actual - made).norm() / (actual - right).norm().clamp_min(TINY))
    return Description("resized", way.text, max(0.0, share), actual.numel())


def _of_source(source: Source) -> Iterator[_Way]:
    """Yield another page that the same code may see by mistake."""
    page, preset = source.page, source.preset
    grid, side = preset.grid(*page.size), preset.tiling.crop_px
    if not crop_count(grid):
        return
    if source.is_view:
        stretched = page.resize((grid[0] * side, grid[1] * side))
        yield _Way("the view is of the page already stretched over its grid of crops", stretched, NO_CROPS)
    else:
        yield _Way("the crops are cut out of the view of the whole page", global_view(page, preset), grid)


def _shrunk(source: Source, limit: int, method: str) -> _Way:
    page = source.page.copy()
    page.thumbnail((limit, limit), Image.Resampling[method.upper()], reducing_gap=None)
    text = f"the page is first shrunk to at most {limit:,} px a side, by Pillow's {method}"
    return _Way(text, page, NO_CROPS if source.is_view else source.preset.grid(*page.size))


def _made(way: _Way, band: Image.Image, source: Source) -> Tensor:
    """Return the levels of one colour, ``[N, H, W]``."""
    if source.is_view:
        return _levels(global_view(band, source.preset))[None]
    (columns, rows), side = way.grid, source.preset.tiling.crop_px
    tiles = _levels(band.resize((columns * side, rows * side))).view(rows, side, columns, side)
    return tiles.transpose(1, 2).reshape(-1, side, side)


def _levels(band: Image.Image) -> Tensor:
    data = torch.frombuffer(bytearray(band.tobytes()), dtype=torch.uint8)
    return data.view(band.height, band.width).float()
