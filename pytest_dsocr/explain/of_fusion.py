"""What-ifs of how vision's tokens are laid out in the prompt, alone and two at a time, for these are cheap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine import pipeline
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.explain.family import Bench, Family

FUSION = Family("vision_fusion")
FUSION_PAIRS = Family("vision_fusion")
"""Two of them at once."""


@dataclass(frozen=True)
class Layout:
    """How an image's tokens are laid out; the defaults are the vendor's."""

    order: str = "cps"
    """Crops, page and separator, each by its letter."""
    crops: Callable[[Tensor, tuple[int, int]], Tensor] = mosaic
    """Makes one map of the crops."""
    page: Callable[[Tensor], Tensor] = square
    ends: str = "crops page"
    """Which maps have a newline behind each row."""
    newline: Callable[[Tensor, Tensor], Tensor] = lambda newline, separator: newline
    separator: Callable[[Tensor, Tensor], Tensor] = lambda newline, separator: separator
    front: bool = False
    """Whether newlines stand in front of their rows."""
    last: Callable[[Tensor], Tensor] = lambda tokens: tokens

    def fuse(
        self, crops: Tensor | None, page: Tensor, grid: tuple[int, int], newline: Tensor, separator: Tensor
    ) -> Tensor:
        """Give ``[tokens, C]``."""
        newline, separator = self.newline(newline, separator), self.separator(newline, separator)
        parts = {"p": self._ended(self.page(page), newline, "page"), "s": separator[None]}
        if crops is not None:
            laid = self.crops(crops, grid)
            parts["c"] = self._ended(laid, newline, "crops")
        return self.last(torch.cat([parts[one] for one in self.order if one in parts]))

    def _ended(self, tokens: Tensor, newline: Tensor, which: str) -> Tensor:
        if which not in self.ends:
            return tokens.flatten(-3, -2) if tokens.dim() == 3 else tokens.flatten(0, -2)
        if self.front:
            return torch.cat([newline.expand(*tokens.shape[:-2], 1, -1), tokens], -2).flatten(0, -2)
        out = end_rows(tokens, newline)
        return out if out.dim() == 2 else out.flatten(0, -2)


def _exchanged(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    return mosaic(crops, (grid[1], grid[0]))


def _exchanged_and_reshaped(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    side = math.isqrt(crops.shape[-2])
    return _exchanged(crops, grid).reshape(grid[1] * side, grid[0] * side, -1)


def _by_column(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    columns, rows = grid
    order = [row + rows * column for row in range(rows) for column in range(columns)]
    return mosaic(crops[order], grid)


def _one_after_another(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    side, (columns, rows) = math.isqrt(crops.shape[-2]), grid
    return crops.reshape(rows * side, columns * side, -1)


def _inside_turned(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    return mosaic(square(crops).transpose(1, 2).flatten(1, 2), grid)


def _each_crop(crops: Tensor, _grid: tuple[int, int]) -> Tensor:
    return square(crops)


def _again(crops: Tensor, grid: tuple[int, int], order: Callable[[int], list[int]]) -> Tensor:
    return mosaic(crops[order(len(crops))], grid)


LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "page-first": ("the whole page in front of the crops", {"order": "pcs"}),
    "separator-between": ("the separator between crops and page", {"order": "csp"}),
    "separator-first": ("the separator in front", {"order": "scp"}),
    "no-separator": ("no separator", {"order": "cp"}),
    "separator-twice": ("a separator behind the crops as well", {"order": "csps"}),
    "page-separator-crops": ("the page, the separator, then the crops", {"order": "psc"}),
    "no-crops": ("no crops", {"order": "ps"}),
    "no-page": ("no whole page", {"order": "cs"}),
    "separator-both": ("a separator in front as well", {"order": "scps"}),
    "first-twice": ("vision's first token twice", {"last": lambda x: torch.cat([x[:1], x])}),
    "pushed-out": (
        "a token too many in front, the last one pushed out",
        {"last": lambda x: torch.cat([x[:1], x[:-1]])},
    ),
    "crops-zero": ("zeros in the place of the crops' tokens", {"crops": lambda crops, grid: 0 * mosaic(crops, grid)}),
    "page-zero": ("zeros in the place of the page's tokens", {"page": lambda page: 0 * square(page)}),
    "zero-first": ("a token of zeros in front of vision's", {"last": lambda x: torch.cat([0 * x[:1], x])}),
    "last-twice": ("vision's last token twice", {"last": lambda x: torch.cat([x, x[-1:]])}),
    "first-dropped": ("vision's first token dropped", {"last": lambda x: x[1:]}),
    "page-twice": ("the whole page twice, the crops left out", {"order": "pps"}),
    "no-newlines": ("no newlines", {"ends": ""}),
    "no-crop-newlines": ("no newlines in the crops", {"ends": "page"}),
    "no-page-newlines": ("no newlines in the page", {"ends": "crops"}),
    "newlines-in-front": ("newlines in front of their rows", {"front": True}),
    "newline-zero": ("newlines of zeros", {"newline": lambda newline, separator: 0 * newline}),
    "newline-separator": ("the separator in the place of newlines", {"newline": lambda newline, separator: separator}),
    "separator-newline": ("a newline in the place of the separator", {"separator": lambda newline, separator: newline}),
    "separator-zero": ("a separator of zeros", {"separator": lambda newline, separator: 0 * separator}),
    "exchanged": (
        "newline and separator exchanged",
        {"newline": lambda newline, separator: separator, "separator": lambda newline, separator: newline},
    ),
    "grid-exchanged": ("columns and rows of the crops exchanged", {"crops": _exchanged}),
    "grid-exchanged-reshaped": (
        "crops laid out by columns and rows exchanged, then reshaped to the page's map",
        {"crops": _exchanged_and_reshaped},
    ),
    "crops-by-column": ("crops taken column by column", {"crops": _by_column}),
    "crops-in-turn": (
        "each crop's tokens behind those of the one before, not laid out as the page",
        {"crops": _one_after_another},
    ),
    "crop-turned": ("rows and columns exchanged inside of each crop", {"crops": _inside_turned}),
    "each-crop-ended": ("newlines behind the rows of each crop", {"crops": _each_crop}),
    "mosaic-turned": (
        "the crops' mosaic read column by column",
        {"crops": lambda crops, grid: mosaic(crops, grid).transpose(0, 1)},
    ),
    "crops-backwards": (
        "crops in the opposite order",
        {"crops": partial(_again, order=lambda n: list(range(n))[::-1])},
    ),
    "crop-left-out": (
        "the last crop left out, the first in its place",
        {"crops": partial(_again, order=lambda n: [*range(n - 1), 0])},
    ),
    "crop-repeated": ("the first crop in the place of every one", {"crops": partial(_again, order=lambda n: [0] * n)}),
    "crops-rotated": ("crops one place off", {"crops": partial(_again, order=lambda n: [*range(1, n), 0])}),
    "page-turned": ("the page's tokens read column by column", {"page": lambda page: square(page).transpose(0, 1)}),
    "page-flipped": ("the page's rows in the opposite order", {"page": lambda page: square(page).flip(0)}),
    "page-mirrored": ("the page's columns in the opposite order", {"page": lambda page: square(page).flip(1)}),
    "bfloat16": ("vision's tokens rounded to bfloat16", {"last": lambda x: x.bfloat16().to(x.dtype)}),
    "float16": ("vision's tokens rounded to float16", {"last": lambda x: x.half().to(x.dtype)}),
    "backwards": ("vision's tokens in the opposite order", {"last": lambda x: x.flip(0)}),
    "one-off": ("vision's tokens one place off", {"last": lambda x: x.roll(1, 0)}),
    "one-off-other": ("vision's tokens one place too early", {"last": lambda x: x.roll(-1, 0)}),
    "scaled": ("vision's tokens multiplied by the root of their width", {"last": lambda x: x * x.shape[-1] ** 0.5}),
}


def _lays_out(on: Bench, how: dict[str, Any]) -> None:
    on.changes.set(pipeline, "fuse", replace(Layout(), **how).fuse)


for _key, (_words, _how) in LAYOUTS.items():
    FUSION.add(_key, _words, partial(_lays_out, how=_how))
for (_key, (_words, _how)), (_other, (_others, _with)) in combinations(LAYOUTS.items(), 2):
    if not {*_how} & {*_with}:
        FUSION_PAIRS.add(f"{_key}+{_other}", f"{_words}, and {_others}", partial(_lays_out, how={**_how, **_with}))
