"""The views that training cuts are those of the contract, to two levels of 255 in a few pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from ci.training.generator import GRIDS, generate
from ci.training.levels import crop_levels, stretch, whole_levels
from pytest_dsocr.contract.image import crops, global_view
from pytest_dsocr.contract.presets import PRESETS, Grid

MOST_APART = 2
WHOLE = {(2, 3): ("tiny", "base", "large"), (3, 2): ("small",), (1, 1): ("tiny", "large")}
"""Presets by the grid of a page that is tall, wide or small: its whole view knows of no grid."""
MOST_DIFFERING = 0.001
"""Share of levels that may differ at all."""


@pytest.fixture(autouse=True)
def across_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every Pillow resize a page's lines before its columns, as training does; Pillow 13 does not always."""
    resize = Image.Image.resize

    def in_two(self: Image.Image, size: tuple[int, int], *arguments: Any, **options: Any) -> Image.Image:
        wide = resize(self, (size[0], self.height), *arguments, **options)
        return resize(wide, size, *arguments, **options)

    monkeypatch.setattr(Image.Image, "resize", in_two)


def levels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def assert_alike(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.shape) == (torch.uint8, expected.shape)
    apart = (found.int() - expected.int()).abs()
    assert int(apart.max()) <= MOST_APART
    assert float((apart > 0).float().mean()) <= MOST_DIFFERING


@pytest.mark.parametrize("grid", GRIDS)
def test_views_of_pages(grid: Grid) -> None:
    page = generate(11, grid=grid).image
    for preset in (PRESETS[name] for name in WHOLE.get(grid, ())):
        assert_alike(whole_levels(levels(page), preset), levels(global_view(page, preset)))
    expected = [levels(crop) for crop in crops(page, grid)]
    found = crop_levels(levels(page), grid)
    assert len(found) == len(expected)
    if expected:
        assert_alike(found, torch.stack(expected))


@pytest.mark.parametrize("size", [(333, 1001), (1001, 333), (641, 640), (40, 40), (997, 998), (3, 500)])
def test_whole_views_of_odd_sizes(size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    page = Image.fromarray(noise).resize((size[0] // 4 + 1, size[1] // 4 + 1)).resize(size)
    for name in ("small", "base"):
        assert_alike(whole_levels(levels(page), PRESETS[name]), levels(global_view(page, PRESETS[name])))


def test_levels_stay_levels() -> None:
    edge = torch.zeros(3, 8, 8, dtype=torch.uint8)
    edge[:, :, 4:] = 255
    stretched = stretch(edge, 64, 64)
    assert (int(stretched.min()), int(stretched.max())) == (0, 255)
    assert bool((stretched.int().diff(dim=2) >= -1)[:, :, 24:40].all()), "over- and undershoot wrapped around"
