"""Mistakes between a page and its pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.image import GREY, SINGLE, files_of, first_bars, fitted, load_image
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import Grid, Preset, crop_count, crop_grid, feature_count
from pytest_dsocr.explain.catalogue.grids import GRIDS, GridRule, nearest
from pytest_dsocr.explain.catalogue.images import (
    OPENINGS,
    RESIZES,
    BarColour,
    Page,
    PageResize,
    PageSize,
    by_pillow,
    opened,
)
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin
from pytest_dsocr.models.spec import ModelSpec

Cut = Callable[["Recipe", Page, Grid, int], Sequence[Page]]
"""Cut a page into a grid of crops with sides of this number of pixels."""


SIGNS = {
    Symptom.GRID_EXCHANGED: ("grid-exchanged",),
    Symptom.NO_CROPS: ("grid-never", "grid-both-sides", "grid-limit-1024"),
    Symptom.CROPS: ("grid-limit-639", "grid-always-last"),
    Symptom.UP_TO_SIX: ("grid-six",),
    Symptom.VIEWS_REORDERED: ("crops-by-column", "crops-backwards"),
    Symptom.CHANNELS_REORDERED: ("opened-bgr", "levels-bgr"),
    Symptom.WHOLE_LEVELS: ("levels-cut",),
    Symptom.ROUNDED: ("levels-float32", "levels-by-256", "levels-in-bfloat16"),
    Symptom.BARS_ALONE: ("bars-128", "bars-white", "bars-black"),
    Symptom.OTHER_BARS: ("squashed", "bars-behind", "size-down"),
}


def pixel_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of pixels."""
    group, tiling = Group("pixels", SIGNS), family.tiling
    right = (f"grid-most-{tiling.most}", *(["grid-six"] if tiling.most == 6 else []))
    side = str(tiling.crop_px)
    changed = {key: row._replace(words=row.words.replace("{crop}", side)) for key, row in CHANGED.items()}
    if family.based_on and (limit := family.based_on.tiling.crop_px) != tiling.crop_px:
        of_limit = {"grid": partial(nearest, limit=limit)}
        changed[f"grid-limit-{limit}"] = Row(
            f"pages of more than {limit} px cut", of_limit, needs_crops=True, kind="grid"
        )
    group.rows("", {key: row for key, row in changed.items() if key not in right}, plant_recipe)
    if family.pages_prompt:
        group.rows("pages", PAGES, _of_pages)
    return group


def plant_recipe(on: Target, how: Mapping[str, Any]) -> None:
    """Replace the contract's recipe for pixels by the vendor's with changes."""
    recipe = replace(Recipe(), **how)
    on.changes.set(inputs, "load_image", recipe.opened)
    on.changes.set(inputs, "views", recipe.views)
    on.changes.set(presets, "crop_grid", recipe.grid)
    # the pixels do not depend on the device
    on.changes.set(inputs, "normalise", lambda levels: recipe.levels(levels.cpu()).to(levels.device))
    on.changes.set(inputs, "check_inputs", lambda *_: None)


PAGES: dict[str, tuple[str, Callable[[Preset], Preset]]] = {
    "cut": ("each of several pages cut into crops, as a page alone is", lambda own: _Cut(**vars(own))),
    "640": ("each of several pages at 640 px, infer_multi's default", lambda own: replace(own, image_size=640)),
}


class _Cut(Preset):
    """Preset without crops that cuts pages all the same, and counts the tokens of the crops."""

    def grid(self, width_px: int, height_px: int) -> Grid:
        return crop_grid(width_px, height_px, self.tiling)


def _count_of_cut(preset: Preset, grid: Grid) -> int:
    return feature_count(preset.view_size, preset.tiling.crop_px, grid, preset.layout)


def _of_pages(on: Target, seen: Callable[[Preset], Preset]) -> None:
    """Read several pages at one place in another preset, and leave a single page as is."""
    right = inputs.prepare_inputs

    def prepare(images: Any, prompt: str, preset: Preset, *given: Any, at_one_place: bool = False, **how: Any) -> Any:
        together = at_one_place and not isinstance(files_of(images) if isinstance(images, SINGLE) else images, SINGLE)
        return right(images, prompt, seen(preset) if together else preset, *given, at_one_place=at_one_place, **how)

    on.changes.set(inputs, "prepare_inputs", prepare)
    on.changes.set(inputs, "image_token_count", _count_of_cut)


@dataclass(frozen=True)
class Recipe:
    """Recipe for a page's pixels; the defaults are the vendor's."""

    opened: Callable[[Any], Page] = load_image
    resize: PageResize = by_pillow
    colour: BarColour = GREY
    place: float = 0.5
    """Place of the page between the bars: 0 is the left or the top."""
    offset: Callable[[float], int] = round
    """Rounds the width of the first bar."""
    rounded: Callable[[float], int] = round
    side: Callable[[Preset], int] = lambda preset: preset.view_size
    """Side of the view of the whole page."""
    squash: bool | None = None
    """Whether the whole page is squashed; None to follow the preset."""
    cropped: Cut | None = None
    grid: GridRule = lambda width, height, tiling: nearest(width, height, tiling)
    levels: Callable[[Tensor], Tensor] = normalise
    """Computes pixels from levels, ``[N, 3, H, W]`` uint8."""

    def view(self, page: Page, preset: Preset) -> Page:
        """Make the view of the whole page."""
        side = self.side(preset)
        if preset.is_squashed if self.squash is None else self.squash:
            return self.resize(page, (side, side))
        small = self.resize(page, fitted(page.size, side, self.rounded))
        out = Image.new("RGB", (side, side), self.colour)
        out.paste(small, first_bars(small.size, side, self.place, self.offset))
        return out

    def crops(self, page: Page, grid: Grid, side: int) -> Sequence[Page]:
        """Make the crops, each of ``side`` x ``side`` pixels."""
        return (self.cropped or _cut)(self, page, grid, side) if crop_count(grid) else []

    def views(self, page: Page, preset: Preset, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return the levels of both, as the contract's function does."""
        side = preset.tiling.crop_px
        return levels([self.view(page, preset)]), levels(self.crops(page, grid, side), side)


def levels(views: Sequence[Page], side: int = 0) -> Tensor:
    """Return RGB views of one size as levels from 0 to 255, channels first: uint8 ``[N, 3, H, W]``.

    ``side`` is the size of the views if there are none.
    """
    if not views:
        return torch.empty((0, 3, side, side), dtype=torch.uint8)
    return torch.from_numpy(np.stack([np.asarray(view) for view in views]).transpose(0, 3, 1, 2).copy())


def _size(grid: Grid, side: int) -> PageSize:
    return grid[0] * side, grid[1] * side


def _tiles(stretched: Page, side: int, by_column: bool = False) -> list[Page]:
    columns, rows = stretched.width // side, stretched.height // side
    corners = [(c * side, r * side) for r in range(rows) for c in range(columns)]
    return [stretched.crop((x, y, x + side, y + side)) for x, y in (sorted(corners) if by_column else corners)]


def _cut(recipe: Recipe, page: Page, grid: Grid, side: int) -> list[Page]:
    """Cut crops of the stretched page: the vendor's way."""
    return _tiles(recipe.resize(page, _size(grid, side)), side)


def _cut_first(recipe: Recipe, page: Page, grid: Grid, side: int, *, whole: bool = False) -> list[Page]:
    """Cut the page into crops, of which all have the same whole number of pixels if ``whole``, and resize each."""
    edges = zip(page.size, grid, strict=True)
    x, y = ([k * (edge // n) if whole else round(k * edge / n) for k in range(n + 1)] for edge, n in edges)
    boxes = [(x[c], y[r], x[c + 1], y[r + 1]) for r in range(grid[1]) for c in range(grid[0])]
    return [recipe.resize(page.crop(box), (side, side)) for box in boxes]


def _padded(recipe: Recipe, page: Page, grid: Grid, side: int, place: float = 0.5) -> list[Page]:
    return _tiles(ImageOps.pad(page, _size(grid, side), color=recipe.colour, centering=(place, place)), side)


CUTS: dict[str, tuple[str, Cut]] = {
    "by-column": (
        "crops column by column",
        lambda recipe, page, grid, side: _tiles(recipe.resize(page, _size(grid, side)), side, by_column=True),
    ),
    "padded": ("crops of the page padded to the grid, not stretched", _padded),
    "padded-corner": ("crops of the page padded behind to the grid, not stretched", partial(_padded, place=0.0)),
    "of-view": (
        "crops of the padded view of the page",
        lambda recipe, page, grid, side: _cut(
            recipe, ImageOps.pad(page, (1024, 1024), color=recipe.colour), grid, side
        ),
    ),
    "fit": (
        "crops of the page cut to the grid's shape, not stretched",
        lambda recipe, page, grid, side: _tiles(ImageOps.fit(page, _size(grid, side)), side),
    ),
    "before-resize": ("each crop cut out first, then resized", _cut_first),
    "before-resize-whole": (
        "each crop cut out first, with the page's sides divided by the grid as whole numbers, then resized",
        partial(_cut_first, whole=True),
    ),
    "thumbnail": (
        "the whole page as a crop of its own behind the others",
        lambda recipe, page, grid, side: [*_cut(recipe, page, grid, side), recipe.resize(page, (side, side))],
    ),
    "backwards": ("crops in the opposite order", lambda recipe, page, grid, side: _cut(recipe, page, grid, side)[::-1]),
}


def _normalised(
    levels: Tensor, mean: Sequence[float] = (0.5,), std: Sequence[float] = (0.5,), dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    shape = (1, -1, 1, 1)
    return ((levels.float() / 255 - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)).to(dtype)


CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LEVELS: MistakeTable = {
    "clip": ("CLIP's means and deviations in place of 0.5", partial(_normalised, mean=CLIP[0], std=CLIP[1])),
    "imagenet": (
        "ImageNet's means and deviations in place of 0.5",
        partial(_normalised, mean=IMAGENET[0], std=IMAGENET[1]),
    ),
    "shares": ("pixels from 0 to 1, not normalised", partial(_normalised, mean=(0.0,), std=(1.0,))),
    "centred": ("pixels from -0.5 to 0.5", partial(_normalised, std=(1.0,))),
    "levels": ("pixels from 0 to 255", lambda x: x.bfloat16()),
    "grey": (
        "each of the pixels' channels replaced by the mean of all",
        lambda x: normalise(x).float().mean(1, keepdim=True).expand(x.shape).bfloat16(),
    ),
    "bgr": ("the pixels' channels in the opposite order", lambda x: normalise(x.flip(1))),
    "float32": ("pixels in float32, not rounded to bfloat16", partial(_normalised, dtype=torch.float32)),
    "float16": Row("pixels in float16, not in bfloat16", partial(_normalised, dtype=torch.float16), "float16"),
    "by-127": ("levels divided by 127.5, less one, in bfloat16", lambda x: x.bfloat16() / 127.5 - 1),
    "in-bfloat16": Row("pixels normalised in bfloat16", lambda x: ((x.bfloat16() / 255) - 0.5) / 0.5, "bfloat16"),
    "by-256": ("levels divided by 256, not by 255", lambda x: ((x.float() / 256 - 0.5) / 0.5).bfloat16()),
    "whole": ("levels divided as whole numbers", lambda x: ((x // 255).float() * 2 - 1).bfloat16()),
    "cut": ("pixels cast to whole numbers", lambda x: normalise(x).to(torch.int8).bfloat16()),
    "turned": ("rows and columns of the pixels exchanged", lambda x: normalise(x.transpose(2, 3).contiguous())),
    "rounded-float16": Row(
        "pixels rounded to float16 in front of bfloat16",
        lambda x: _normalised(x, dtype=torch.float16).bfloat16(),
        "float16",
    ),
}
COLOURS: dict[str, BarColour] = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "128": (128, 128, 128),
    "clip-mean": (122, 116, 104),
    "imagenet-mean": (123, 116, 103),
    "imagenet-mean-up": (124, 116, 104),
    "114": (114, 114, 114),
}


def _changing(field: str, table: Mapping[str, tuple[str, Any] | Row], words: str = "{}") -> dict[str, Row]:
    """Return rows that change one field of the recipe."""
    rows = {key: Row(*row) for key, row in table.items()}
    return {key: row._replace(words=words.format(row.words), how={field: row.how}) for key, row in rows.items()}


BARS: MistakeTable = {
    **{
        key: Row(f"bars of the colour {colour}", {"colour": colour}, is_small=key == "128")
        for key, colour in COLOURS.items()
    },
    "behind": ("the page at the left or the top, its bars behind it", {"place": 0.0}),
    "down": ("the width of the bar in front of the page rounded down", {"offset": int}),
    "up": ("the width of the bar in front of the page rounded up", {"offset": ceil}),
    "in-front": ("the page at the right or the bottom, its bars in front of it", {"place": 1.0}),
}
VIEWS: MistakeTable = {
    "squashed": ("the whole page squashed into its view", {"squash": True}),
    "not-squashed": ("the whole page padded where it should be squashed", {"squash": False}),
    "base-size": ("the view of the page as wide as base_size without crops too", {"side": lambda own: own.base_size}),
    "size-down": ("the page's fitted size rounded down", {"rounded": int}),
    "size-up": ("the page's fitted size rounded up", {"rounded": lambda edge: int(-(-edge // 1))}),
}
CHANGED: dict[str, Row] = {
    **kin("grid", _changing("grid", GRIDS), needs_crops=True),
    **kin("resize", _changing("resize", RESIZES, "the page resized by {}")),
    **kin("bars", BARS),
    **{key: Row(*row) for key, row in VIEWS.items()},
    **kin("crops", _changing("cropped", CUTS), needs_crops=True),
    **kin("opened", {key: (words, {"opened": partial(opened, change=one)}) for key, (words, one) in OPENINGS.items()}),
    **kin("levels", _changing("levels", LEVELS)),
}
"""Fields that differ from the vendor's recipe."""
