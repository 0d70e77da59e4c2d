"""What a wrong fact of the contract resembles: a known way in which ports make inputs otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.grid import MAX_CROPS, MIN_CROPS, Grid, crop_grid
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.special import TextTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

LIMITS = (range(MIN_CROPS, MAX_CROPS), range(MAX_CROPS + 1, 33))
"""Limits of crops that a port may have in place of the vendor's: below it, and above."""
NEAR_LEVELS = 2.0
"""Two views that differ by less than so many of 255 levels on average were made alike."""


def hinted(compared: Comparison, hints: Callable[[], Iterator[str]]) -> Comparison:
    """Add the first of ``hints`` to a comparison that is wrong; they are looked for only then."""
    hint = next(hints(), None) if compared.verdict is Verdict.WRONG else None
    return replace(compared, details=(f"check: {hint}", *compared.details)) if hint else compared


def of_grid(size_px: tuple[int, int], mine: Grid) -> Iterator[str]:
    """Yield what leads to this grid of a page of this size, where it is not the vendor's."""
    columns, rows = crop_grid(*size_px)
    for limits in LIMITS:
        if found := [most for most in limits if crop_grid(*size_px, most=most) == mine]:
            most = f"{found[0]} to {found[-1]}" if len(found) > 1 else f"{found[0]}"
            yield f"the limit of crops: this grid comes of a limit of {most}, and infer's is {MAX_CROPS}"
    if mine == (rows, columns):
        yield "the order of columns and rows: they are exchanged"
    if (columns, rows) == (1, 1):
        yield "when a page is cut: not where both its sides are within 640 px, as here"
    elif mine == (1, 1):
        yield "when a page is cut: where its width or its height is above 640 px, and not both"


def of_no_crops(mine: str) -> Iterator[str]:
    """Yield what is wrong with ``images_crop`` of a page that is not cut, shown as its dtype and shape."""
    if mine.startswith("bfloat16"):
        yield "what stands for the crops of a page without any: zeros in float32, where infer casts real crops to bf16"


def of_view(mine: Tensor, page: Path, preset: Preset) -> Iterator[str]:
    """Yield how a view of a whole page ``[1, 3, V, V]`` was made, where that is not as the vendor makes it."""
    import numpy as np
    import torch
    from PIL import ImageOps

    from pytest_dsocr.contract.image import load_image

    image, side = load_image(page), (preset.view_size, preset.view_size)
    padded = ImageOps.pad(image, side, color=(127, 127, 127))
    other = padded if preset.is_squashed else image.resize(side)
    levels = torch.from_numpy(np.asarray(other).copy()).permute(2, 0, 1).float()
    if mine.shape[-2:] == levels.shape[-2:] and ((mine[0] + 1) * 127.5 - levels).abs().mean() < NEAR_LEVELS:
        yield _OF_VIEW[preset.is_squashed]


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
    after = list(mine[len(mine) - list(reversed(mine)).index(image) :])
    if stripped[0] and mine[1] == image:
        yield "where the image stands: at the prompt's <image>, which need not be in front"
    if after != stripped[1] and (mine[1] != image or after == pieces[1]):
        yield "the white space around the prompt: infer strips it"
    if after != stripped[1]:
        yield "what stands beside the prompt's text: infer strips white space, and adds none"
