"""What a wrong fact of the contract resembles: a known way in which ports make inputs otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.presets import CANDIDATES, MAX_CROPS, MIN_CROPS, Grid, Preset, crop_grid
from pytest_dsocr.contract.prompt import TextTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

LIMITS = (range(MIN_CROPS, MAX_CROPS), range(MAX_CROPS + 1, 33))
"""Limits of crops that a port may have in place of the vendor's: below it, and above."""
MARKS = re.compile(r"<\|/?\w+\|>")
LARGE = "that a large page is not shrunk first, nor resized in two steps (reducing_gap)"
RIGHT_GRID = f"infer takes up to {MAX_CROPS}, and compares exact aspect ratios, width over height, by their difference"
Nearness = Callable[[int, int, int, int], float]
"""How far a grid is from a page: of its width and height, and of the grid's columns and rows."""
NEAR_LEVELS = 2.0
"""Two views that differ by less than so many of 255 levels on average were made alike."""


def hinted(compared: Comparison, hints: Callable[[], Iterator[str]]) -> Comparison:
    """Add the first of ``hints`` to a comparison that is wrong; they are looked for only then."""
    hint = next(hints(), None) if compared.verdict is Verdict.WRONG else None
    return replace(compared, details=(f"check: {hint}", *compared.details)) if hint else compared


def of_grid(size_px: tuple[int, int], mine: Grid) -> Iterator[str]:
    """Yield what leads to this grid of a page of this size, where it is not the vendor's."""
    columns, rows = crop_grid(*size_px)
    ways = [
        f"of {way}" for way, measures in NEARNESS.items() if any(_is_nearest(size_px, mine, one) for one in measures)
    ]
    for limits in LIMITS:
        if found := [most for most in limits if crop_grid(*size_px, most=most) == mine]:
            ways.append("of a limit of " + " to ".join(map(str, dict.fromkeys((found[0], found[-1])))) + " crops")
    if ways:
        yield f"how a grid is chosen: this one comes {', or '.join(ways)}; {RIGHT_GRID}"
    if mine == (rows, columns):
        yield "the order of columns and rows: they are exchanged"
    if (columns, rows) == (1, 1):
        yield "when a page is cut: not where both its sides are within 640 px, as here"
    elif mine == (1, 1):
        yield "when a page is cut: where its width or its height is above 640 px, and not both; into two crops at least"


def of_no_crops(mine: str) -> Iterator[str]:
    """Yield what is wrong with ``images_crop`` of a page that is not cut, shown as its dtype and shape."""
    if mine.startswith("bfloat16"):
        yield "what stands for the crops of a page without any: zeros in float32, where infer casts real crops to bf16"


def of_cut_prompt(mine: Sequence[int], bos: int) -> Iterator[str]:
    """Yield that a prompt was cut, where its BOS is gone."""
    if mine[0] != bos:
        yield f"that prompts are not cut: this one has {len(mine)} ids and lost its BOS, with what stood behind it"


def _is_nearest(size_px: tuple[int, int], mine: Grid, measure: Nearness) -> bool:
    """Tell whether a grid is among the nearest by another measure, and by the vendor's is not."""
    by_other, by_vendors = ({one: way(*size_px, *one) for one in CANDIDATES} for way in (measure, _apart))
    return mine in by_other and by_other[mine] == min(by_other.values()) and by_vendors[mine] > min(by_vendors.values())


def _apart(width: int, height: int, columns: int, rows: int) -> float:
    return abs(width / height - columns / rows)


def _both_rounded(digits: int) -> Nearness:
    return lambda w, h, i, j: abs(round(w / h, digits) - round(i / j, digits))


def _page_rounded(digits: int) -> Nearness:
    return lambda w, h, i, j: abs(round(w / h, digits) - i / j)


NEARNESS: Mapping[str, Sequence[Nearness]] = {
    "height over width": [lambda w, h, i, j: abs(h / w - j / i)],
    "the quotient of aspect ratios": [lambda w, h, i, j: abs(log(w / h) - log(i / j))],
    "aspect ratios rounded before they are compared": [
        way(n) for way in (_both_rounded, _page_rounded) for n in (1, 2, 3)
    ],
}
"""How ports measure how near a grid is to a page, in place of the vendor's way."""


def of_view(mine: Tensor, page: Path, preset: Preset) -> Iterator[str]:
    """Yield how a view of a whole page ``[1, 3, V, V]`` was made, where that is not as the vendor makes it."""
    import numpy as np
    import torch
    from PIL import ImageOps

    from pytest_dsocr.compare.inputs import inside_bars
    from pytest_dsocr.contract.image import load_image

    image, side = load_image(page), (preset.view_size, preset.view_size)
    padded = ImageOps.pad(image, side, color=(127, 127, 127))
    other = padded if preset.is_squashed else image.resize(side)
    levels = torch.from_numpy(np.asarray(other).copy()).permute(2, 0, 1).float()
    if mine.shape[-2:] == levels.shape[-2:] and ((mine[0] + 1) * 127.5 - levels).abs().mean() < NEAR_LEVELS:
        yield _OF_VIEW[preset.is_squashed]
    whole = torch.from_numpy(np.asarray(padded).copy()).permute(2, 0, 1).float() / 127.5 - 1
    if not preset.is_squashed and inside_bars(mine[0]) != inside_bars(whole):
        yield _OF_BARS


_OF_BARS = (
    "how wide the bars are: infer rounds the page's shorter side, and puts half of what is left, rounded to even, in "
    "front of it"
)
_OF_VIEW = {
    False: "whether the page is squashed: it is here, and infer pads it with grey; it squashes only without crops and "
    "up to 640 px",
    True: "whether the page is padded: it is here, and infer squashes it, as without crops and up to 640 px",
}


def of_prompt(mine: Sequence[int], text: str, tokenizer: TextTokenizer) -> Iterator[str]:
    """Yield how a prompt's ids were made, where they are not the vendor's."""
    image = tokenizer.special.image
    pieces, stripped = ([tokenizer.encode(piece) for piece in one.split("<image>")] for one in (text, text.strip()))
    if len(pieces) != 2 or image not in mine:
        return
    lost = [mark for mark in MARKS.findall(text) if tokenizer.encode(mark)[0] not in mine]
    if lost:
        yield f"the markup in the prompt's text: {lost[0]} is a token of its own there, and nothing is escaped"
    after = list(mine[len(mine) - list(reversed(mine)).index(image) :])
    if stripped[0] and mine[1] == image:
        yield "where the image stands: at the prompt's <image>, which need not be in front"
    if after != stripped[1] and (mine[1] != image or after == pieces[1]):
        yield "the white space around the prompt: infer strips it"
    if after != stripped[1]:
        yield "what stands beside the prompt's text: infer strips white space, and adds none"
