"""What-ifs of how a page becomes pixels, alone and two at a time, for these are cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.image import GREY, load_image
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.recipe import (
    Recipe,
    as_jpeg,
    by_pillow,
    by_pillow_in_steps,
    by_torch,
    by_transform,
    ceil_grid,
    cut_backwards,
    cut_by_column,
    cut_first,
    cut_fit,
    cut_padded,
    cut_view,
    cut_with_page,
    laid_over,
    mean_of_channels,
    nearest_grid,
    normalised,
    opened_as,
    wide_levels,
)

PIXELS = Family("pixels")
CLIP_STD = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RESIZES = {
    **{
        f"pillow-{m.name.lower()}": (f"Pillow's {m.name.lower()} filter", partial(by_pillow, method=m))
        for m in Image.Resampling
        if m is not Image.Resampling.BICUBIC
    },
    **{
        f"torch-{mode}-{int(anti)}": (
            f"torch's {mode}{' with antialias' if anti else ''}",
            partial(by_torch, mode=mode, antialias=anti),
        )
        for mode in ("bilinear", "bicubic")
        for anti in (False, True)
    },
    "transform-bicubic": (
        "Pillow's bicubic filter without antialias",
        partial(by_transform, method=Image.Resampling.BICUBIC),
    ),
    "transform-bilinear": (
        "Pillow's bilinear filter without antialias",
        partial(by_transform, method=Image.Resampling.BILINEAR),
    ),
    "torch-nearest": ("torch's nearest", partial(by_torch, mode="nearest", antialias=False)),
    **{
        f"gap-{gap:g}": (f"Pillow's reducing_gap of {gap:g}", partial(by_pillow_in_steps, gap=gap))
        for gap in (1.0, 2.0, 3.0)
    },
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
    "by-column": ("crops column by column", cut_by_column),
    "padded": ("crops of the page padded to the grid, not stretched", cut_padded),
    "padded-corner": ("crops of the page padded behind to the grid, not stretched", partial(cut_padded, place=0.0)),
    "of-view": ("crops of the padded view of the page", cut_view),
    "fit": ("crops of the page cut to the grid's shape, not stretched", cut_fit),
    "before-resize": ("each crop cut first and resized then", cut_first),
    "thumbnail": ("the whole page as a crop of its own behind the others", cut_with_page),
    "backwards": ("crops in the opposite order", cut_backwards),
}
OPENINGS: dict[str, tuple[str, Callable[[Image.Image], Image.Image]]] = {
    "no-orientation": ("the EXIF orientation left alone", lambda image: image.convert("RGB")),
    "on-white": ("transparent pixels laid on white", partial(laid_over, colour=(255, 255, 255))),
    "on-black": ("transparent pixels laid on black", partial(laid_over, colour=(0, 0, 0))),
    "on-grey": ("transparent pixels laid on grey", partial(laid_over, colour=GREY)),
    "bgr": (
        "the page's channels as blue, green, red",
        lambda image: Image.merge("RGB", load_image(image).split()[::-1]),
    ),
    "grey": ("the page made grey", lambda image: load_image(image).convert("L").convert("RGB")),
    "wide": ("16-bit levels divided by 256, not clipped", lambda image: wide_levels(ImageOps.exif_transpose(image))),
    "negative": ("the page's levels inverted", lambda image: ImageOps.invert(load_image(image))),
    "autocontrast": ("the page's contrast stretched", lambda image: ImageOps.autocontrast(load_image(image))),
    "grey-mean": ("the page made grey by the mean of its channels", lambda image: mean_of_channels(load_image(image))),
    "grey-late": ("the page made grey as it is stored", lambda image: image.convert("L").convert("RGB")),
    "jpeg": ("the page written as a JPEG and read again", lambda image: as_jpeg(load_image(image), 75)),
    "jpeg-95": (
        "the page written as a JPEG of quality 95 and read again",
        lambda image: as_jpeg(load_image(image), 95),
    ),
    "jpeg-90": (
        "the page written as a JPEG of quality 90 and read again",
        lambda image: as_jpeg(load_image(image), 90),
    ),
    "six-bits": ("levels of 6 bits", lambda image: load_image(image).point(lambda level: level // 4 * 4)),
    "five-bits": ("levels of 5 bits", lambda image: load_image(image).point(lambda level: level // 8 * 8)),
    "binary": ("the page made black and white", lambda image: load_image(image).convert("1").convert("RGB")),
    "turned": ("the page turned by 90 degrees", lambda image: load_image(image).transpose(Image.Transpose.ROTATE_90)),
    "mirrored": ("the page mirrored", lambda image: ImageOps.mirror(load_image(image))),
}
GRIDS: dict[str, tuple[str, Callable[[int, int], Grid]]] = {
    "exchanged": ("columns and rows of the grid exchanged", partial(nearest_grid, swapped=True)),
    "six": ("at most 6 crops", partial(nearest_grid, most=6)),
    "twelve": ("at most 12 crops", partial(nearest_grid, most=12)),
    "four": ("at most 4 crops", partial(nearest_grid, most=4)),
    "tie-first": ("the first of grids that are equally near", partial(nearest_grid, tie="first")),
    "tie-last": ("the last of grids that are equally near", partial(nearest_grid, tie="last")),
    "always": ("pages cut that fit into one crop", partial(nearest_grid, always=True)),
    "never": ("no page cut", lambda width, height: (1, 1)),
    "from-one": ("a grid of one crop among those to choose from", partial(nearest_grid, least=1)),
    "ceil": ("a grid of as many crops as the page's sides hold, rounded up", ceil_grid),
    "limit-1024": ("pages of up to 1024 px not cut", partial(nearest_grid, limit=1024)),
    "log": ("the grid nearest by the ratio of ratios, not by their difference", partial(nearest_grid, by="log")),
    "always-first": (
        "pages cut that fit into one crop, by the first grid of those equally near",
        partial(nearest_grid, always=True, tie="first"),
    ),
    "always-last": (
        "pages cut that fit into one crop, by the last grid of those equally near",
        partial(nearest_grid, always=True, tie="last"),
    ),
}
LEVELS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "clip": ("CLIP's means and deviations in place of 0.5", partial(normalised, mean=CLIP_STD[0], std=CLIP_STD[1])),
    "imagenet": (
        "ImageNet's means and deviations in place of 0.5",
        partial(normalised, mean=IMAGENET[0], std=IMAGENET[1]),
    ),
    "shares": ("pixels from 0 to 1, not normalised", partial(normalised, mean=(0.0,), std=(1.0,))),
    "centred": ("pixels from -0.5 to 0.5", partial(normalised, std=(1.0,))),
    "levels": ("pixels from 0 to 255", lambda x: x.bfloat16()),
    "grey": (
        "the mean of the pixels' channels in each",
        lambda x: normalise(x).float().mean(1, keepdim=True).expand(x.shape).bfloat16(),
    ),
    "bgr": ("the pixels' channels in the opposite order", lambda x: normalise(x.flip(1))),
    "float32": ("pixels in float32, not rounded to bfloat16", partial(normalised, dtype=torch.float32)),
    "float16": ("pixels in float16, not in bfloat16", partial(normalised, dtype=torch.float16)),
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
        lambda x: normalised(x, dtype=torch.float16).bfloat16(),
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
        f"opened-{key}": (words, {"opened": partial(opened_as, change=change)})
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
