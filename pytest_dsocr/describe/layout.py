"""Rows of a stage's tensor, with their meaning: views, positions of a plane, tokens of a prompt.

Shapes: B views, N rows of a view, C channels, h x w positions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Grid, Layout
from pytest_dsocr.describe.pair import RowPair

IN_FEWER_BITS = 2e-2
"""Relative error of a row in bfloat16 or float16 that is mere rounding."""

LOGIT = "logit"
"""Name of a row of logits, which have no place on the page."""


@dataclass(frozen=True)
class ImageTokens:
    """Layout of an image's tokens in the prompt."""

    grid: Grid
    """Columns and rows of crops."""
    crop: int
    """Tokens along a crop's side."""
    page: int
    """Tokens along the side of the page's view."""
    layout: Layout

    @property
    def of_crops(self) -> int:
        """Number of the crops' tokens, which come first."""
        return self.layout.crop_tokens(self.crop, self.grid)

    @property
    def count(self) -> int:
        """Number of all tokens."""
        return self.of_crops + self.layout.page_tokens(self.page)

    @property
    def crop_width(self) -> int:
        """Tokens of a line of crops, with its end."""
        return self.crop * (self.grid[0] if self.layout.mosaic else 1) + self.layout.newlines

    @property
    def page_width(self) -> int:
        """Tokens of a line of the page, with its end."""
        return self.page + self.layout.newlines


def pair_of(
    actual: Tensor,
    expected: Tensor,
    *,
    channels_last: bool,
    image: Tensor | None = None,
    tokens: ImageTokens | None = None,
    given: Tensor | None = None,
    item: str = RowPair.item,
) -> RowPair:
    """Return two tensors of a stage as rows.

    Args:
        actual: the subject's.
        expected: the expected one, of any shape.
        channels_last: whether a tensor of four axes has its channels last, as inside of SAM.
        image: of a prompt's tensor, the mask of the image's tokens ``[S]``.
        tokens: layout of an image's tokens, if the tensor holds them as they are put into the prompt.
        given: input of the block.
        item: name of what the first axis counts.
    """
    own, right = (_rows(one, channels_last) for one in (actual, expected))
    noise = RowPair.noise if expected.dtype is torch.float32 else IN_FEWER_BITS
    grid, noun = _plane(expected, channels_last), "position"
    places: Mapping[str, Tensor] = {}
    if image is not None:
        grid, places, noun = None, _of_prompt(image), "token"
    elif tokens is not None and right.shape[:2] == (1, tokens.count):
        grid, places, noun = None, _of_image(tokens), "token"
    elif grid is not None and right.shape[1] == grid[0] * grid[1] + 1:
        places = {"the class token": torch.arange(right.shape[1]) == 0}
    elif expected.ndim == 1:
        own, right, noun = own.mT, right.mT, LOGIT
    known = {name: mask for name, mask in places.items() if len(mask) == right.shape[1]}
    block_input = _rows(given, channels_last) if given is not None and given.shape == expected.shape else None
    return RowPair(own, right, noun, grid, known, block_input, noise, item)


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


def _of_image(image: ImageTokens) -> Mapping[str, Tensor]:
    """Return the rows of an image's tokens: its crops, the page, the ends of their lines, the separator."""
    left = image.of_crops
    at = torch.arange(image.count)
    of_crops, separator = at < left, at == image.count - 1
    of_page = ~of_crops & ~separator
    ends, page_ends = torch.zeros_like(of_crops), torch.zeros_like(of_page)
    if image.layout.newlines:
        ends = of_crops & (at % image.crop_width == image.crop_width - 1)
        page_ends = of_page & ((at - left) % image.page_width == image.page_width - 1)
    named = {
        "the ends of all lines": ends | page_ends,
        "the crops' tokens": of_crops,
        "the page's tokens": of_page,
        "the ends of the crops' lines": ends,
        "the ends of the page's lines": page_ends,
        "the separator": separator,
    }
    return {name: mask for name, mask in named.items() if mask.any()}
