"""What-ifs of the projector, and of how vision's tokens are laid out in the prompt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import pipeline
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.whatif.blocks import DTYPES
from pytest_dsocr.whatif.family import Bench, Family

PROJECTOR = Family("projector")
FUSION = Family("vision_fusion")


def _rows(sam: Tensor) -> Tensor:
    return sam.flatten(2).transpose(1, 2)


Pairing = Callable[[Tensor, Tensor], Tensor]
"""Makes of CLIP's tokens and SAM's map what the projector gets."""
PAIRINGS: dict[str, tuple[str, Pairing]] = {
    "sam-first": ("SAM's features in front of CLIP's", lambda clip, sam: torch.cat([_rows(sam), clip[:, 1:]], -1)),
    "last-dropped": (
        "CLIP's last token dropped in place of its class token",
        lambda clip, sam: torch.cat([clip[:, :-1], _rows(sam)], -1),
    ),
    "sam-turned": (
        "SAM's map read column by column",
        lambda clip, sam: torch.cat([clip[:, 1:], _rows(sam.transpose(2, 3))], -1),
    ),
    "sam-reshaped": (
        "SAM's map reshaped, its channels not moved behind its places",
        lambda clip, sam: torch.cat([clip[:, 1:], sam.reshape(len(sam), -1, sam.shape[1])], -1),
    ),
    "clip-turned": (
        "CLIP's tokens read column by column",
        lambda clip, sam: torch.cat([_turned(clip[:, 1:]), _rows(sam)], -1),
    ),
    "clip-twice": (
        "CLIP's features in the place of SAM's",
        lambda clip, sam: torch.cat([clip[:, 1:], clip[:, 1:]], -1),
    ),
    "sam-twice": ("SAM's features in the place of CLIP's", lambda clip, sam: torch.cat([_rows(sam), _rows(sam)], -1)),
    "no-clip": (
        "zeros in the place of CLIP's features",
        lambda clip, sam: torch.cat([0 * clip[:, 1:], _rows(sam)], -1),
    ),
    "no-sam": ("zeros in the place of SAM's features", lambda clip, sam: torch.cat([clip[:, 1:], 0 * _rows(sam)], -1)),
    "interleaved": (
        "CLIP's and SAM's channels in turn",
        lambda clip, sam: torch.stack([clip[:, 1:], _rows(sam)], -1).flatten(2),
    ),
    "normed": (
        "a norm without weights in front of the projector",
        lambda clip, sam: _layer_norm(torch.cat([clip[:, 1:], _rows(sam)], -1)),
    ),
    "clip-normed": (
        "a norm without weights behind CLIP",
        lambda clip, sam: torch.cat([_layer_norm(clip[:, 1:]), _rows(sam)], -1),
    ),
    "units": (
        "CLIP's and SAM's features made of length one",
        lambda clip, sam: torch.cat([F.normalize(clip[:, 1:], dim=-1), F.normalize(_rows(sam), dim=-1)], -1),
    ),
    "sam-flipped": (
        "SAM's rows in the opposite order",
        lambda clip, sam: torch.cat([clip[:, 1:], _rows(sam.flip(2))], -1),
    ),
    "shifted": (
        "CLIP's tokens one place off, the class token in front",
        lambda clip, sam: torch.cat([clip.roll(1, 1)[:, 1:], _rows(sam)], -1),
    ),
    "summed": (
        "CLIP's and SAM's features added, then put twice",
        lambda clip, sam: torch.cat([clip[:, 1:] + _rows(sam)] * 2, -1),
    ),
}
"""They need CLIP and SAM to be of one width where both are in one place."""


def _turned(tokens: Tensor) -> Tensor:
    return square(tokens).transpose(1, 2).flatten(1, 2)


def _layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _pairs(on: Bench, pairing: Pairing) -> None:
    def projector(self: Pipeline[Any], clip: Tensor, sam: Tensor) -> Tensor:
        with self.running("projector"):
            return self.model.project(pairing(clip, sam))

    on.changes.set(Pipeline, "projector", projector)


def _projects(on: Bench, change: Callable[[Any, Tensor], Tensor]) -> None:
    linear = on.model.model.projector.layers
    on.changes.forward(linear, partial(change, linear))


def _columns(weight: Tensor, order: str) -> Tensor:
    half = weight.shape[1] // 2
    return torch.cat([weight[:, half:], weight[:, :half]], 1) if order == "halves" else weight.flip(1)


LINEARS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "no-bias": ("the projector without its bias", lambda linear, x: F.linear(x, linear.weight)),
    "bias-twice": ("the projector's bias added twice", lambda linear, x: F.linear(x, linear.weight, 2 * linear.bias)),
    "gelu": ("GELU behind the projector", lambda linear, x: F.gelu(F.linear(x, linear.weight, linear.bias))),
    "gelu-front": ("GELU in front of the projector", lambda linear, x: F.linear(F.gelu(x), linear.weight, linear.bias)),
    "silu": ("SiLU behind the projector", lambda linear, x: F.silu(F.linear(x, linear.weight, linear.bias))),
    "relu": ("ReLU behind the projector", lambda linear, x: F.relu(F.linear(x, linear.weight, linear.bias))),
    "normed-out": (
        "a norm without weights behind the projector",
        lambda linear, x: _layer_norm(F.linear(x, linear.weight, linear.bias)),
    ),
    "unit-out": (
        "the projector's tokens made of length one",
        lambda linear, x: F.normalize(F.linear(x, linear.weight, linear.bias), dim=-1),
    ),
    "scaled-root": (
        "the projector's tokens multiplied by the root of their width",
        lambda linear, x: F.linear(x, linear.weight, linear.bias) * linear.weight.shape[0] ** 0.5,
    ),
    "divided-root": (
        "the projector's tokens divided by the root of their width",
        lambda linear, x: F.linear(x, linear.weight, linear.bias) / linear.weight.shape[0] ** 0.5,
    ),
    "halves": (
        "the halves of the projector's weight exchanged",
        lambda linear, x: F.linear(x, _columns(linear.weight, "halves"), linear.bias),
    ),
    "reshaped": (
        "the projector's weight transposed and reshaped",
        lambda linear, x: F.linear(x, linear.weight.T.reshape(linear.weight.shape), linear.bias),
    ),
}
for _name, _dtype in DTYPES.items():
    LINEARS[f"weight-{_name}"] = (
        f"the projector's weight rounded to {_name}",
        lambda linear, x, to=_dtype: F.linear(x, linear.weight.to(to).to(x.dtype), linear.bias),
    )  # type: ignore[misc]
    LINEARS[f"gets-{_name}"] = (
        f"what the projector gets rounded to {_name}",
        lambda linear, x, to=_dtype: F.linear(x.to(to).to(x.dtype), linear.weight, linear.bias),
    )  # type: ignore[misc]
    LINEARS[f"gives-{_name}"] = (
        f"what the projector gives rounded to {_name}",
        lambda linear, x, to=_dtype: F.linear(x, linear.weight, linear.bias).to(to).to(x.dtype),
    )  # type: ignore[misc]
    LINEARS[f"runs-{_name}"] = (
        f"the projector computed in {_name}",
        lambda linear, x, to=_dtype: F.linear(x.to(to), linear.weight.to(to), linear.bias.to(to)).to(x.dtype),
    )  # type: ignore[misc]

for _key, (_words, _pairing) in PAIRINGS.items():
    PROJECTOR.add(
        _key,
        f"{_words} in front of the projector" if "projector" not in _words else _words,
        partial(_pairs, pairing=_pairing),
    )
for _key, (_words, _linear) in LINEARS.items():
    PROJECTOR.add(_key, _words, partial(_projects, change=_linear))


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
            return end_rows(tokens.flip(-2), newline).flip(0).unflatten(0, (tokens.shape[-3], -1)).flip(0).flatten(0, 1)
        out = end_rows(tokens, newline)
        return out if out.dim() == 2 else out.flatten(0, -2)


def _exchanged(crops: Tensor, grid: tuple[int, int]) -> Tensor:
    return mosaic(crops, (grid[1], grid[0]))


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
        FUSION.add(f"{_key}+{_other}", f"{_words}, and {_others}", partial(_lays_out, how={**_how, **_with}))
