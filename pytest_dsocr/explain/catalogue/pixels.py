"""Mistakes between a page and its pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from math import ceil, log
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.image import GREY, SINGLE, files_of, load_image
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import Grid, Preset, Tiling, candidates, crop_count, crop_grid, feature_count
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin
from pytest_dsocr.models.spec import ModelSpec

Page = Image.Image
PageSize = tuple[int, int]
BarColour = tuple[int, int, int]
PageResize = Callable[[Page, PageSize], Page]
"""Resize a page to a width and a height."""
GridRule = Callable[[int, int, Tiling], Grid]
"""Choose the grid of a page from its width and height."""
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
    group, right = Group("pixels", SIGNS), f"grid-most-{family.tiling.most}"
    side = str(family.tiling.crop_px)
    changed = {key: row._replace(words=row.words.replace("{crop}", side)) for key, row in CHANGED.items()}
    group.rows("", {key: row for key, row in changed.items() if key != right}, plant_recipe)
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


def _by_pillow(image: Page, size: PageSize, method: Image.Resampling = Image.Resampling.BICUBIC, **how: Any) -> Page:
    return image.resize(size, method, **how)


def _by_torch(image: Page, size: PageSize, dtype: torch.dtype = torch.float32, **how: Any) -> Page:
    """Resize as torch does, rounded to whole levels; on bytes by torch's integer kernel, which is torchvision's."""
    levels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].to(dtype)
    out = F.interpolate(levels, size=(size[1], size[0]), **how).float()
    return Image.fromarray(out[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


_by_bytes = partial(_by_torch, dtype=torch.uint8, antialias=True)
BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


def _by_transform(image: Page, size: PageSize, method: Image.Resampling = BICUBIC) -> Page:
    """Resize without looking at more than a pixel's neighbours."""
    scale = (image.width / size[0], 0.0, 0.0, 0.0, image.height / size[1], 0.0)
    return image.transform(size, Image.Transform.AFFINE, scale, method)


@dataclass(frozen=True)
class Recipe:
    """Recipe for a page's pixels; the defaults are the vendor's."""

    opened: Callable[[Any], Page] = load_image
    resize: PageResize = _by_pillow
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
        share = side / max(page.size)
        fitted = [max(1, self.rounded(edge * share)) if edge < max(page.size) else side for edge in page.size]
        small = self.resize(page, (fitted[0], fitted[1]))
        out = Image.new("RGB", (side, side), self.colour)
        out.paste(small, (self.offset((side - fitted[0]) * self.place), self.offset((side - fitted[1]) * self.place)))
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


def _cut_first(recipe: Recipe, page: Page, grid: Grid, side: int) -> list[Page]:
    """Cut the page into crops, and resize each."""
    x, y = ([round(k * edge / count) for k in range(count + 1)] for edge, count in zip(page.size, grid, strict=True))
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
    "before-resize": ("each crop cut first and resized then", _cut_first),
    "thumbnail": (
        "the whole page as a crop of its own behind the others",
        lambda recipe, page, grid, side: [*_cut(recipe, page, grid, side), recipe.resize(page, (side, side))],
    ),
    "backwards": ("crops in the opposite order", lambda recipe, page, grid, side: _cut(recipe, page, grid, side)[::-1]),
}


def _opened(source: Any, change: Callable[[Page], Page]) -> Page:
    """Open a page and make it RGB in another way."""
    if isinstance(source, Page):
        return change(source)
    return change(Image.open(BytesIO(source if isinstance(source, bytes) else Path(source).read_bytes())))


def _laid_over(image: Page, colour: BarColour) -> Page:
    """Blend transparent pixels onto a colour."""
    image = ImageOps.exif_transpose(image).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, (*colour, 255)), image).convert("RGB")


def _wide(image: Page) -> Page:
    """Divide 16-bit levels to 8 bits; Pillow clips them."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    return image.convert("RGB")


def _as_stored(image: Page) -> Page:
    opened = image.convert("RGB")
    opened.info.clear()
    return opened


def _mean(image: Page) -> Page:
    grey = np.asarray(load_image(image)).mean(-1).astype(np.uint8)
    return Image.fromarray(np.repeat(grey[..., None], 3, -1))


def _jpeg(image: Page, quality: int = 75, read: Callable[[Page], Page] = load_image) -> Page:
    written = BytesIO()
    read(image).save(written, "JPEG", quality=quality)
    return Image.open(written).convert("RGB")


STORED = "the page written as a JPEG of quality {}, its EXIF orientation left alone"
OPENINGS: dict[str, tuple[str, Callable[[Page], Page]]] = {
    "no-orientation": ("the EXIF orientation left alone", _as_stored),
    "on-white": ("transparent pixels laid on white", partial(_laid_over, colour=(255, 255, 255))),
    "on-black": ("transparent pixels laid on black", partial(_laid_over, colour=(0, 0, 0))),
    "on-grey": ("transparent pixels laid on grey", partial(_laid_over, colour=GREY)),
    "bgr": (
        "the page's channels as blue, green, red",
        lambda image: Image.merge("RGB", load_image(image).split()[::-1]),
    ),
    "grey": ("the page made grey", lambda image: load_image(image).convert("L").convert("RGB")),
    "wide": ("16-bit levels divided by 256, not clipped", _wide),
    "grey-mean": ("the page made grey by the mean of its channels", _mean),
    "grey-late": ("the page made grey as it is stored", lambda image: image.convert("L").convert("RGB")),
    "jpeg": ("the page written as a JPEG and read again", _jpeg),
    "jpeg-95": ("the page written as a JPEG of quality 95 and read again", partial(_jpeg, quality=95)),
    "jpeg-90": ("the page written as a JPEG of quality 90 and read again", partial(_jpeg, quality=90)),
    "jpeg-75-stored": (STORED.format(75), partial(_jpeg, read=_as_stored)),
    "jpeg-95-stored": (STORED.format(95), partial(_jpeg, quality=95, read=_as_stored)),
    "six-bits": ("levels of 6 bits", lambda image: load_image(image).point(lambda level: level // 4 * 4)),
}
GridDistance = Callable[[float, Grid], float]
"""Return the distance of a grid from a page's width over its height."""


def _rounded(page_digits: int, grid_digits: int = 99) -> GridDistance:
    return lambda ratio, grid: abs(round(ratio, page_digits) - round(grid[0] / grid[1], grid_digits))


NEARNESS: dict[str, tuple[str, GridDistance]] = {
    "log": ("by the ratio of ratios, not by their difference", lambda ratio, grid: abs(log(ratio * grid[1] / grid[0]))),
    "inverse": ("by height over width", lambda ratio, grid: abs(1 / ratio - grid[1] / grid[0])),
    **{f"rounded-{n}": (f"by ratios rounded to {n} digits", _rounded(n, n)) for n in (1, 2, 3)},
    **{f"page-rounded-{n}": (f"by the page's ratio rounded to {n} digits", _rounded(n)) for n in (1, 2, 3)},
}


def nearest(
    width: int,
    height: int,
    tiling: Tiling,
    *,
    most: int = 0,
    least: int = 2,
    tie: str = "area",
    swapped: bool = False,
    limit: int | None = None,
    margin: int = 0,
    both: bool = False,
    by: GridDistance = lambda ratio, grid: abs(ratio - grid[0] / grid[1]),
) -> Grid:
    """Choose a grid by another rule than the vendor's, which is that of the defaults.

    Args:
        width: of the page, in pixels.
        height: of the page, in pixels.
        tiling: how the model cuts pages.
        most: the most crops, if not the model's.
        least: the fewest crops of a page that is cut.
        tie: which of two grids that are equally near is chosen.
        swapped: exchange columns and rows.
        limit: the longest side of a page that is not cut, if not a crop's.
        margin: pixels by which that side is shorter.
        both: cut a page only if both of its sides are too long.
        by: how far a grid is from a page's shape.
    """
    crop_px = tiling.crop_px
    if (min if both else max)(width, height) <= (crop_px if limit is None else limit) - margin:
        return 1, 1
    found = candidates(most or tiling.most, least)
    best, least_apart = found[0], float("inf")
    for grid in found:
        apart = by(width / height, grid)
        half = width * height > 0.5 * crop_px**2 * grid[0] * grid[1]
        if apart < least_apart or (apart == least_apart and {"area": half, "first": False, "last": True}[tie]):
            best, least_apart = grid, apart
    return best[::-1] if swapped else best


def _ceil(width: int, height: int, tiling: Tiling) -> Grid:
    """Return the grid of the crops that the sides hold, within the limit."""
    columns, rows = (max(1, -(-side // tiling.crop_px)) for side in (width, height))
    while columns * rows > tiling.most:
        columns, rows = (columns - 1, rows) if columns > rows else (columns, rows - 1)
    return columns, rows


GRIDS: dict[str, tuple[str, GridRule]] = {
    "exchanged": ("columns and rows of the grid exchanged", partial(nearest, swapped=True)),
    **{name: (f"at most {n} crops", partial(nearest, most=n)) for name, n in (("six", 6), ("twelve", 12), ("four", 4))},
    "tie-first": ("the first of grids that are equally near", partial(nearest, tie="first")),
    "tie-last": ("the last of grids that are equally near", partial(nearest, tie="last")),
    "both-sides": ("only pages cut both of whose sides are above {crop} px", partial(nearest, both=True)),
    "always": ("pages cut that fit into one crop", partial(nearest, limit=0)),
    "never": ("no page cut", lambda *_: (1, 1)),
    "from-one": ("a grid of one crop among those to choose from", partial(nearest, least=1)),
    "ceil": ("a grid of as many crops as the page's sides hold, rounded up", _ceil),
    "limit-1024": ("pages of up to 1024 px not cut", partial(nearest, limit=1024)),
    "limit-639": ("pages of exactly {crop} px cut", partial(nearest, margin=1)),
    **{key: (f"the grid nearest {words}", partial(nearest, by=by)) for key, (words, by) in NEARNESS.items()},
    **{
        f"always-{tie}": (
            f"pages cut that fit into one crop, by the {tie} grid of those equally near",
            partial(nearest, limit=0, tie=tie),
        )
        for tie in ("first", "last")
    },
    **{f"most-{n}": (f"at most {n} crops", partial(nearest, most=n)) for n in (2, 3, 5, *range(7, 12), 16, 20, 24, 32)},
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
        "the mean of the pixels' channels in each",
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
RESIZES: dict[str, tuple[str, PageResize]] = {
    **{
        f"pillow-{method.name.lower()}": (f"Pillow's {method.name.lower()} filter", partial(_by_pillow, method=method))
        for method in Image.Resampling
        if method is not BICUBIC
    },
    "torch-bilinear-0": ("torch's bilinear", partial(_by_torch, mode="bilinear")),
    "torch-bilinear-1": ("torch's bilinear with antialias", partial(_by_torch, mode="bilinear", antialias=True)),
    "torch-bicubic-0": ("torch's bicubic", partial(_by_torch, mode="bicubic")),
    "torch-bicubic-1": ("torch's bicubic with antialias", partial(_by_torch, mode="bicubic", antialias=True)),
    "torch-bytes-bilinear": ("torchvision's bilinear on bytes, with antialias", partial(_by_bytes, mode="bilinear")),
    "torch-bytes-bicubic": ("torchvision's bicubic on bytes, with antialias", partial(_by_bytes, mode="bicubic")),
    "transform-bicubic": ("Pillow's bicubic filter without antialias", _by_transform),
    "transform-bilinear": ("Pillow's bilinear filter without antialias", partial(_by_transform, method=BILINEAR)),
    "torch-nearest": ("torch's nearest", partial(_by_torch, mode="nearest")),
    "gap-2": ("Pillow's reducing_gap of 2", partial(_by_pillow, reducing_gap=2.0)),
    "gap-3": ("Pillow's reducing_gap of 3", partial(_by_pillow, reducing_gap=3.0)),
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
    **kin("opened", {key: (words, {"opened": partial(_opened, change=one)}) for key, (words, one) in OPENINGS.items()}),
    **kin("levels", _changing("levels", LEVELS)),
}
"""Fields that differ from the vendor's recipe."""
