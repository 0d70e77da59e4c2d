"""How a page becomes pixels, each step of it open to be done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.image import GREY, load_image
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import CROP_PX, Grid, Preset, candidates, crop_count, crop_grid
from pytest_dsocr.explain.family import Bench

Size = tuple[int, int]
Colour = tuple[int, int, int]


def by_pillow(image: Image.Image, size: Size, method: Image.Resampling = Image.Resampling.BICUBIC) -> Image.Image:
    """Resize to width and height by one of Pillow's filters."""
    return image.resize(size, method)


def by_torch(image: Image.Image, size: Size, mode: str, antialias: bool) -> Image.Image:
    """Resize as torch does, in float32, rounded to whole levels."""
    levels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float()
    how: dict[str, Any] = {} if mode == "nearest" else {"antialias": antialias, "align_corners": False}
    out = F.interpolate(levels, size=(size[1], size[0]), mode=mode, **how)
    return Image.fromarray(out[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


def by_transform(image: Image.Image, size: Size, method: Image.Resampling) -> Image.Image:
    """Resize without looking at more than a pixel's neighbours."""
    scale = (image.width / size[0], 0.0, 0.0, 0.0, image.height / size[1], 0.0)
    return image.transform(size, Image.Transform.AFFINE, scale, method)


def by_pillow_in_steps(image: Image.Image, size: Size, gap: float) -> Image.Image:
    """Resize as Pillow does with a reducing gap."""
    return image.resize(size, Image.Resampling.BICUBIC, reducing_gap=gap)


@dataclass(frozen=True)
class Recipe:
    """How a page becomes pixels; the defaults are the vendor's."""

    opened: Callable[[Any], Image.Image] = load_image
    resize: Callable[[Image.Image, Size], Image.Image] = by_pillow
    colour: Colour = GREY
    place: float = 0.5
    """Of the page between the bars: 0 is at the left or the top."""
    rounded: Callable[[float], int] = round
    squash: bool | None = None
    """Whether the whole page is squashed; None for what the preset says."""
    cropped: Callable[[Recipe, Image.Image, Grid], Sequence[Image.Image]] | None = None
    grid: Callable[[int, int], Grid] = crop_grid
    levels: Callable[[Tensor], Tensor] = normalise
    """Makes pixels of levels from 0 to 255, ``[N, 3, H, W]`` uint8."""

    def view(self, page: Image.Image, preset: Preset) -> Image.Image:
        """Give the view of the whole page."""
        side = preset.view_size
        if preset.is_squashed if self.squash is None else self.squash:
            return self.resize(page, (side, side))
        share = side / max(page.size)
        fitted = [max(1, self.rounded(edge * share)) if edge < max(page.size) else side for edge in page.size]
        small = self.resize(page, (fitted[0], fitted[1]))
        out = Image.new("RGB", (side, side), self.colour)
        out.paste(small, (round((side - fitted[0]) * self.place), round((side - fitted[1]) * self.place)))
        return out

    def crops(self, page: Image.Image, grid: Grid) -> Sequence[Image.Image]:
        """Give the crops."""
        if not crop_count(grid):
            return []
        return (self.cropped or cut)(self, page, grid)

    def plant(self, on: Bench) -> None:
        """Have the session's inputs made so."""
        on.changes.set(inputs, "load_image", self.opened)
        on.changes.set(inputs, "global_view", self.view)
        on.changes.set(inputs, "crops", self.crops)
        on.changes.set(inputs, "crop_grid", self.grid)
        on.changes.set(inputs, "normalise", self.levels)


def tiles(stretched: Image.Image, by_column: bool = False, side: int = CROP_PX) -> list[Image.Image]:
    """Cut an image into squares, row by row."""
    columns, rows = stretched.width // side, stretched.height // side
    places = [(c, r) for r in range(rows) for c in range(columns)]
    if by_column:
        places = [(c, r) for c in range(columns) for r in range(rows)]
    return [stretched.crop((c * side, r * side, (c + 1) * side, (r + 1) * side)) for c, r in places]


def cut(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops of the stretched page: the vendor's way."""
    return tiles(recipe.resize(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def cut_by_column(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops of the stretched page, column by column."""
    return tiles(recipe.resize(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)), by_column=True)


def cut_padded(recipe: Recipe, page: Image.Image, grid: Grid, place: float = 0.5) -> list[Image.Image]:
    """Cut crops of the page between bars."""
    size = (grid[0] * CROP_PX, grid[1] * CROP_PX)
    return tiles(ImageOps.pad(page, size, color=recipe.colour, centering=(place, place)))


def cut_view(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops of the view of the whole page."""
    whole = ImageOps.pad(page, (1024, 1024), color=recipe.colour)
    return tiles(recipe.resize(whole, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def cut_fit(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops of the page without its edges."""
    return tiles(ImageOps.fit(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def cut_first(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut the page into crops, and resize each."""
    columns, rows = grid
    edges = [
        [round(k * side / count) for k in range(count + 1)]
        for side, count in ((page.width, columns), (page.height, rows))
    ]
    boxes = [(edges[0][c], edges[1][r], edges[0][c + 1], edges[1][r + 1]) for r in range(rows) for c in range(columns)]
    return [recipe.resize(page.crop(box), (CROP_PX, CROP_PX)) for box in boxes]


def cut_with_page(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops, with the whole page as the last."""
    return [*cut(recipe, page, grid), recipe.resize(page, (CROP_PX, CROP_PX))]


def cut_backwards(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Cut crops, the last in front."""
    return cut(recipe, page, grid)[::-1]


def opened_as(source: Any, change: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Open a page, and have it made RGB in another way."""
    if isinstance(source, Image.Image):
        return change(source)
    return change(Image.open(BytesIO(source if isinstance(source, bytes) else Path(source).read_bytes())))


def laid_over(image: Image.Image, colour: Colour) -> Image.Image:
    """Lay transparent pixels on a colour."""
    image = ImageOps.exif_transpose(image).convert("RGBA")
    below = Image.new("RGBA", image.size, (*colour, 255))
    return Image.alpha_composite(below, image).convert("RGB")


def wide_levels(image: Image.Image) -> Image.Image:
    """Bring 16-bit levels to 8 bits by their size, where Pillow clips them."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    return image.convert("RGB")


def nearest_grid(
    width: int,
    height: int,
    *,
    most: int = 9,
    least: int = 2,
    tie: str = "area",
    always: bool = False,
    swapped: bool = False,
    limit: int = CROP_PX,
    by: str = "ratio",
) -> Grid:
    """Choose a grid by another rule, or the vendor's."""
    if not always and width <= limit and height <= limit:
        return 1, 1
    found = [grid for grid in ([(1, 1)] if least == 1 else []) + list(candidates(most)) if grid[0] * grid[1] >= least]
    best, nearest = found[0], float("inf")
    for grid in found:
        apart = (
            abs(width / height - grid[0] / grid[1])
            if by == "ratio"
            else abs(np.log(width / height * grid[1] / grid[0]))
        )
        half = width * height > 0.5 * CROP_PX**2 * grid[0] * grid[1]
        if apart < nearest or (apart == nearest and {"area": half, "first": False, "last": True}[tie]):
            best, nearest = grid, apart
    return best[::-1] if swapped else best


def ceil_grid(width: int, height: int) -> Grid:
    """Give as many crops as the sides hold, nine at most."""
    columns, rows = (max(1, -(-side // CROP_PX)) for side in (width, height))
    while columns * rows > 9:
        columns, rows = (columns - 1, rows) if columns > rows else (columns, rows - 1)
    return columns, rows


def normalised(
    levels: Tensor, mean: Sequence[float] = (0.5,), std: Sequence[float] = (0.5,), dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """Turn levels into pixels by these means and deviations."""
    shape = (1, -1, 1, 1)
    return ((levels.float() / 255 - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)).to(dtype)


def mean_of_channels(image: Image.Image) -> Image.Image:
    """Make a page grey by the mean of its channels."""
    grey = np.asarray(image).mean(-1).astype(np.uint8)
    return Image.fromarray(np.repeat(grey[..., None], 3, -1))


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Write a page as a JPEG, and read it again."""
    written = BytesIO()
    image.save(written, "JPEG", quality=quality)
    return Image.open(written).convert("RGB")
