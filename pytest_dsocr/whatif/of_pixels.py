"""What-ifs of how a page becomes pixels, alone and two at a time, for these are cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract import inputs
from pytest_dsocr.contract.grid import CROP_PX, Grid, candidates, crop_count, crop_grid
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.views import GREY
from pytest_dsocr.whatif.family import Bench, Family

PIXELS = Family("pixels")
Size = tuple[int, int]
Colour = tuple[int, int, int]


def _pillow(image: Image.Image, size: Size, method: Image.Resampling = Image.Resampling.BICUBIC) -> Image.Image:
    return image.resize(size, method)


def _torch(image: Image.Image, size: Size, mode: str, antialias: bool) -> Image.Image:
    levels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float()
    how: dict[str, Any] = {} if mode == "nearest" else {"antialias": antialias, "align_corners": False}
    out = F.interpolate(levels, size=(size[1], size[0]), mode=mode, **how)
    return Image.fromarray(out[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy())


def _transformed(image: Image.Image, size: Size, method: Image.Resampling) -> Image.Image:
    """Resize without looking at more than a pixel's neighbours."""
    scale = (image.width / size[0], 0.0, 0.0, 0.0, image.height / size[1], 0.0)
    return image.transform(size, Image.Transform.AFFINE, scale, method)


def _gap(image: Image.Image, size: Size, gap: float) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, reducing_gap=gap)


@dataclass(frozen=True)
class Recipe:
    """How a page becomes pixels; the defaults are the vendor's."""

    opened: Callable[[Any], Image.Image] = load_image
    resize: Callable[[Image.Image, Size], Image.Image] = _pillow
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
        return (self.cropped or _cut)(self, page, grid)

    def plant(self, on: Bench) -> None:
        """Have the session's inputs made so."""
        on.changes.set(inputs, "load_image", self.opened)
        on.changes.set(inputs, "global_view", self.view)
        on.changes.set(inputs, "crops", self.crops)
        on.changes.set(inputs, "crop_grid", self.grid)
        on.changes.set(inputs, "normalise", self.levels)


def _tiles(stretched: Image.Image, by_column: bool = False, side: int = CROP_PX) -> list[Image.Image]:
    columns, rows = stretched.width // side, stretched.height // side
    places = [(c, r) for r in range(rows) for c in range(columns)]
    if by_column:
        places = [(c, r) for c in range(columns) for r in range(rows)]
    return [stretched.crop((c * side, r * side, (c + 1) * side, (r + 1) * side)) for c, r in places]


def _cut(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    return _tiles(recipe.resize(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def _cut_by_column(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    return _tiles(recipe.resize(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)), by_column=True)


def _cut_padded(recipe: Recipe, page: Image.Image, grid: Grid, place: float = 0.5) -> list[Image.Image]:
    size = (grid[0] * CROP_PX, grid[1] * CROP_PX)
    return _tiles(ImageOps.pad(page, size, color=recipe.colour, centering=(place, place)))


def _cut_view(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    whole = ImageOps.pad(page, (1024, 1024), color=recipe.colour)
    return _tiles(recipe.resize(whole, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def _cut_fit(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    return _tiles(ImageOps.fit(page, (grid[0] * CROP_PX, grid[1] * CROP_PX)))


def _cut_first(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    columns, rows = grid
    edges = [
        [round(k * side / count) for k in range(count + 1)]
        for side, count in ((page.width, columns), (page.height, rows))
    ]
    boxes = [(edges[0][c], edges[1][r], edges[0][c + 1], edges[1][r + 1]) for r in range(rows) for c in range(columns)]
    return [recipe.resize(page.crop(box), (CROP_PX, CROP_PX)) for box in boxes]


def _cut_with_page(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    return [*_cut(recipe, page, grid), recipe.resize(page, (CROP_PX, CROP_PX))]


def _backwards(recipe: Recipe, page: Image.Image, grid: Grid) -> list[Image.Image]:
    return _cut(recipe, page, grid)[::-1]


def _opened(source: Any, change: Callable[[Image.Image], Image.Image]) -> Image.Image:
    if isinstance(source, Image.Image):
        return change(source)
    return change(Image.open(BytesIO(source if isinstance(source, bytes) else Path(source).read_bytes())))


def _over(image: Image.Image, colour: Colour) -> Image.Image:
    image = ImageOps.exif_transpose(image).convert("RGBA")
    below = Image.new("RGBA", image.size, (*colour, 255))
    return Image.alpha_composite(below, image).convert("RGB")


def _wide(image: Image.Image) -> Image.Image:
    """Bring 16-bit levels to 8 bits by their size, where Pillow clips them."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    return image.convert("RGB")


def _grid(
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


def _ceil_grid(width: int, height: int) -> Grid:
    columns, rows = (max(1, -(-side // CROP_PX)) for side in (width, height))
    while columns * rows > 9:
        columns, rows = (columns - 1, rows) if columns > rows else (columns, rows - 1)
    return columns, rows


def _normalised(
    levels: Tensor, mean: Sequence[float] = (0.5,), std: Sequence[float] = (0.5,), dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    shape = (1, -1, 1, 1)
    return ((levels.float() / 255 - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)).to(dtype)


def _mean(image: Image.Image) -> Image.Image:
    grey = np.asarray(image).mean(-1).astype(np.uint8)
    return Image.fromarray(np.repeat(grey[..., None], 3, -1))


def _as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    written = BytesIO()
    image.save(written, "JPEG", quality=quality)
    return Image.open(written).convert("RGB")


CLIP_STD = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RESIZES = {
    **{
        f"pillow-{m.name.lower()}": (f"Pillow's {m.name.lower()} filter", partial(_pillow, method=m))
        for m in Image.Resampling
        if m is not Image.Resampling.BICUBIC
    },
    **{
        f"torch-{mode}-{int(anti)}": (
            f"torch's {mode}{' with antialias' if anti else ''}",
            partial(_torch, mode=mode, antialias=anti),
        )
        for mode in ("bilinear", "bicubic")
        for anti in (False, True)
    },
    "transform-bicubic": (
        "Pillow's bicubic filter without antialias",
        partial(_transformed, method=Image.Resampling.BICUBIC),
    ),
    "transform-bilinear": (
        "Pillow's bilinear filter without antialias",
        partial(_transformed, method=Image.Resampling.BILINEAR),
    ),
    "torch-nearest": ("torch's nearest", partial(_torch, mode="nearest", antialias=False)),
    **{f"gap-{gap:g}": (f"Pillow's reducing_gap of {gap:g}", partial(_gap, gap=gap)) for gap in (1.0, 2.0, 3.0)},
}
COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "128": (128, 128, 128),
    "clip-mean": (122, 116, 104),
    "imagenet-mean": (123, 116, 103),
    "imagenet-mean-up": (124, 116, 104),
    "114": (114, 114, 114),
}
CUTS = {
    "by-column": ("crops column by column", _cut_by_column),
    "padded": ("crops of the page padded to the grid, not stretched", _cut_padded),
    "padded-corner": ("crops of the page padded behind to the grid, not stretched", partial(_cut_padded, place=0.0)),
    "of-view": ("crops of the padded view of the page", _cut_view),
    "fit": ("crops of the page cut to the grid's shape, not stretched", _cut_fit),
    "before-resize": ("each crop cut first and resized then", _cut_first),
    "thumbnail": ("the whole page as a crop of its own behind the others", _cut_with_page),
    "backwards": ("crops in the opposite order", _backwards),
}
OPENINGS: dict[str, tuple[str, Callable[[Image.Image], Image.Image]]] = {
    "no-orientation": ("the EXIF orientation left alone", lambda image: image.convert("RGB")),
    "on-white": ("transparent pixels laid on white", partial(_over, colour=(255, 255, 255))),
    "on-black": ("transparent pixels laid on black", partial(_over, colour=(0, 0, 0))),
    "on-grey": ("transparent pixels laid on grey", partial(_over, colour=GREY)),
    "bgr": (
        "the page's channels as blue, green, red",
        lambda image: Image.merge("RGB", load_image(image).split()[::-1]),
    ),
    "grey": ("the page made grey", lambda image: load_image(image).convert("L").convert("RGB")),
    "wide": ("16-bit levels divided by 256, not clipped", lambda image: _wide(ImageOps.exif_transpose(image))),
    "negative": ("the page's levels inverted", lambda image: ImageOps.invert(load_image(image))),
    "autocontrast": ("the page's contrast stretched", lambda image: ImageOps.autocontrast(load_image(image))),
    "grey-mean": ("the page made grey by the mean of its channels", lambda image: _mean(load_image(image))),
    "grey-late": ("the page made grey as it is stored", lambda image: image.convert("L").convert("RGB")),
    "jpeg": ("the page written as a JPEG and read again", lambda image: _as_jpeg(load_image(image), 75)),
    "jpeg-95": (
        "the page written as a JPEG of quality 95 and read again",
        lambda image: _as_jpeg(load_image(image), 95),
    ),
    "jpeg-90": (
        "the page written as a JPEG of quality 90 and read again",
        lambda image: _as_jpeg(load_image(image), 90),
    ),
    "binary": ("the page made black and white", lambda image: load_image(image).convert("1").convert("RGB")),
    "turned": ("the page turned by 90 degrees", lambda image: load_image(image).transpose(Image.Transpose.ROTATE_90)),
    "mirrored": ("the page mirrored", lambda image: ImageOps.mirror(load_image(image))),
}
GRIDS: dict[str, tuple[str, Callable[[int, int], Grid]]] = {
    "exchanged": ("columns and rows of the grid exchanged", partial(_grid, swapped=True)),
    "six": ("at most 6 crops", partial(_grid, most=6)),
    "twelve": ("at most 12 crops", partial(_grid, most=12)),
    "four": ("at most 4 crops", partial(_grid, most=4)),
    "tie-first": ("the first of grids that are equally near", partial(_grid, tie="first")),
    "tie-last": ("the last of grids that are equally near", partial(_grid, tie="last")),
    "always": ("pages cut that fit into one crop", partial(_grid, always=True)),
    "never": ("no page cut", lambda width, height: (1, 1)),
    "from-one": ("a grid of one crop among those to choose from", partial(_grid, least=1)),
    "ceil": ("a grid of as many crops as the page's sides hold, rounded up", _ceil_grid),
    "limit-1024": ("pages of up to 1024 px not cut", partial(_grid, limit=1024)),
    "log": ("the grid nearest by the ratio of ratios, not by their difference", partial(_grid, by="log")),
    "always-first": (
        "pages cut that fit into one crop, by the first grid of those equally near",
        partial(_grid, always=True, tie="first"),
    ),
    "always-last": (
        "pages cut that fit into one crop, by the last grid of those equally near",
        partial(_grid, always=True, tie="last"),
    ),
}
LEVELS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "clip": ("CLIP's means and deviations in place of 0.5", partial(_normalised, mean=CLIP_STD[0], std=CLIP_STD[1])),
    "imagenet": (
        "ImageNet's means and deviations in place of 0.5",
        partial(_normalised, mean=IMAGENET[0], std=IMAGENET[1]),
    ),
    "shares": ("pixels from 0 to 1, not normalised", partial(_normalised, mean=(0.0,), std=(1.0,))),
    "centred": ("pixels from -0.5 to 0.5", partial(_normalised, std=(1.0,))),
    "levels": ("pixels from 0 to 255", lambda x: x.bfloat16()),
    "bgr": ("the pixels' channels in the opposite order", lambda x: normalise(x.flip(1))),
    "float32": ("pixels in float32, not rounded to bfloat16", partial(_normalised, dtype=torch.float32)),
    "float16": ("pixels in float16, not in bfloat16", partial(_normalised, dtype=torch.float16)),
    "by-127": ("levels divided by 127.5, less one, in bfloat16", lambda x: x.bfloat16() / 127.5 - 1),
    "in-bfloat16": ("pixels normalised in bfloat16", lambda x: ((x.bfloat16() / 255) - 0.5) / 0.5),
    "by-256": ("levels divided by 256, not by 255", lambda x: ((x.float() / 256 - 0.5) / 0.5).bfloat16()),
    "whole": ("levels divided as whole numbers", lambda x: ((x // 255).float() * 2 - 1).bfloat16()),
    "cut": ("pixels cast to whole numbers", lambda x: normalise(x).to(torch.int8).bfloat16()),
    "cut-rounded": ("pixels rounded to whole numbers", lambda x: normalise(x).round()),
    "negative": ("pixels negated", lambda x: -normalise(x)),
    "turned": ("rows and columns of the pixels exchanged", lambda x: normalise(x.transpose(2, 3).contiguous())),
    "rounded-float16": (
        "pixels rounded to float16 in front of bfloat16",
        lambda x: _normalised(x, dtype=torch.float16).bfloat16(),
    ),
}
ALL: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{f"grid-{key}": (words, {"grid": grid}) for key, (words, grid) in GRIDS.items()},
    **{
        f"resize-{key}": (f"the page resized by {words}", {"resize": resize})
        for key, (words, resize) in RESIZES.items()
    },
    **{f"bars-{key}": (f"bars of the colour {colour}", {"colour": colour}) for key, colour in COLOURS.items()},
    "bars-behind": ("the page at the left or the top, its bars behind it", {"place": 0.0}),
    "bars-in-front": ("the page at the right or the bottom, its bars in front of it", {"place": 1.0}),
    "squashed": ("the whole page squashed into its view", {"squash": True}),
    "not-squashed": ("the whole page padded where it should be squashed", {"squash": False}),
    "size-down": ("the page's fitted size rounded down", {"rounded": int}),
    "size-up": ("the page's fitted size rounded up", {"rounded": lambda edge: int(-(-edge // 1))}),
    **{f"crops-{key}": (words, {"cropped": cut}) for key, (words, cut) in CUTS.items()},
    **{
        f"opened-{key}": (words, {"opened": partial(_opened, change=change)})
        for key, (words, change) in OPENINGS.items()
    },
    **{f"levels-{key}": (words, {"levels": levels}) for key, (words, levels) in LEVELS.items()},
}
"""Of each what is other than in the vendor's recipe."""


def _plant(on: Bench, changed: Mapping[str, Any]) -> None:
    replace(Recipe(), **changed).plant(on)


for _key, (_words, _changed) in ALL.items():
    PIXELS.add(_key, _words, partial(_plant, changed=_changed))
PAIRS = Family("pixels")
"""Two of them at once."""
for (_key, (_words, _changed)), (_other, (_others, _with)) in combinations(ALL.items(), 2):
    if not {*_changed} & {*_with} and not (_key.startswith("grid") or _other.startswith("opened")):
        PAIRS.add(f"{_key}+{_other}", f"{_words}, and {_others}", partial(_plant, changed={**_changed, **_with}))
