"""Rows of a stage's tensor, with their meaning: views, positions of a plane, tokens of a prompt.

Shapes: B views, N rows of a view, C channels, h x w positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.describe.pair import RowPair

IN_FEWER_BITS = 2e-2
"""Relative error of a row in bfloat16 or float16 that is mere rounding."""


def pair_of(
    actual: Tensor,
    expected: Tensor,
    *,
    channels_last: bool,
    image: Tensor | None = None,
    crops: Grid | None = None,
    given: Tensor | None = None,
) -> RowPair:
    """Return two tensors of a stage as rows.

    Args:
        actual: the subject's.
        expected: the expected one, of any shape.
        channels_last: whether a tensor of four axes has its channels last, as inside of SAM.
        image: of a prompt's tensor, the mask of the image's tokens ``[S]``.
        crops: of an image's tokens as they are put into the prompt, columns and rows of crops.
        given: input of the block.
    """
    own, right = (_rows(one, channels_last) for one in (actual, expected))
    noise = RowPair.noise if expected.dtype is torch.float32 else IN_FEWER_BITS
    grid, noun = _plane(expected, channels_last), "position"
    places: Mapping[str, Tensor] = {}
    if image is not None:
        grid, places, noun = None, _of_prompt(image), "token"
    elif crops is not None and right.shape[0] == 1:
        grid, places, noun = None, _of_image(right.shape[1], crops), "token"
    elif grid is not None and right.shape[1] == grid[0] * grid[1] + 1:
        places = {"the class token": torch.arange(right.shape[1]) == 0}
    elif expected.ndim == 1:
        own, right, noun = own.mT, right.mT, "logit"
    known = {name: mask for name, mask in places.items() if len(mask) == right.shape[1]}
    block_input = _rows(given, channels_last) if given is not None and given.shape == expected.shape else None
    return RowPair(own, right, noun, grid, known, block_input, noise)


def _rows(tensor: Tensor, channels_last: bool) -> Tensor:
    """Return ``[B, N, C]`` float32 on the CPU."""
    tensor = tensor.detach().float().cpu()
    if tensor.ndim == 4:
        return (tensor if channels_last else tensor.movedim(1, -1)).flatten(1, 2)
    return tensor[(None,) * (3 - tensor.ndim)]


def _plane(tensor: Tensor, channels_last: bool) -> tuple[int, int] | None:
    """Return height and width of a view's last rows, if they lie in a plane."""
    if tensor.ndim == 4:
        height, width = tensor.shape[1:3] if channels_last else tensor.shape[2:]
        return height, width
    rows = tensor.shape[-2] if tensor.ndim == 3 else 0
    side = math.isqrt(rows)
    return (side, side) if side > 1 and rows - side * side in (0, 1) else None


def _of_prompt(image: Tensor) -> Mapping[str, Tensor]:
    places = image.nonzero().flatten()
    if not len(places):
        return {}
    at = torch.arange(len(image))
    named = {
        "the image's tokens": image,
        "the text's tokens": ~image,
        "the tokens before the image": at < places[0],
        "the tokens after the image": at > places[-1],
    }
    return {name: mask.cpu() for name, mask in named.items() if mask.any()}


def _of_image(count: int, crops: Grid) -> Mapping[str, Tensor]:
    """Return the rows of an image's tokens: its crops as one page, the page, the ends of their lines, the separator."""
    if (sides := image_sides(count, crops)) is None:
        return {}
    side, page = sides
    left = count - page * (page + 1) - 1
    columns = crops[0]
    at = torch.arange(count)
    of_crops, separator = at < left, at == count - 1
    ends = of_crops & (at % (side * columns + 1) == side * columns)
    page_ends = ~of_crops & ~separator & ((at - left) % (page + 1) == page)
    named = {
        "the ends of all lines": ends | page_ends,
        "the crops' tokens": of_crops,
        "the page's tokens": ~of_crops & ~separator,
        "the ends of the crops' lines": ends,
        "the ends of the page's lines": page_ends,
        "the separator": separator,
    }
    return {name: mask for name, mask in named.items() if mask.any()}


def image_sides(count: int, crops: Grid) -> tuple[int, int] | None:
    """Return the tokens along a crop's side and the page's; a side is 0 without crops. Return None for other counts."""
    columns, rows = crops
    for page in range(math.isqrt(count), 1, -1):
        left = count - page * (page + 1) - 1
        side = next((k for k in range(1, page + 1) if left == k * rows * (k * columns + 1)), 0)
        if left == 0 or (side and (columns, rows) != (1, 1)):
            return side, page
    return None
