"""Vision tokens into the prompt: rows ended by a newline, crops before the whole page, a separator last.

Shapes: P crops in R rows of K columns, q x q tokens of a crop, h x w tokens of the whole page, C channels.
"""

import math

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError


def fuse(
    crops_PNC: Tensor | None, page_NC: Tensor, grid: tuple[int, int] | None, newline: Tensor | None, separator: Tensor
) -> Tensor:
    """Arrange one image's projected tokens as the decoder reads them: ``[tokens, C]``.

    Args:
        crops_PNC: the crops' tokens ``[P, q * q, C]``, or None if the page is not cropped.
        page_NC: the whole page's tokens ``[h * w, C]``.
        grid: columns and rows of crops that are a mosaic; None if one follows another.
        newline: the vector that ends each row, ``[C]``, or None if nothing does.
        separator: the vector that ends the image, ``[C]``.
    """
    parts = [end_rows(square(page_NC), newline), separator[None]]
    if crops_PNC is not None:
        rows = square(crops_PNC) if grid is None else mosaic(crops_PNC, grid)
        parts.insert(0, end_rows(rows, newline).flatten(0, -2))
    return torch.cat(parts)


def mosaic(crops_PNC: Tensor, grid: tuple[int, int]) -> Tensor:
    """Lay crops ``[..., P, q * q, C]`` out as the page they were cut from: ``[..., R * q, K * q, C]``."""
    columns, rows = grid
    side = _side(crops_PNC)
    tiles = crops_PNC.unflatten(-2, (side, side)).unflatten(-4, (rows, columns))
    return tiles.transpose(-4, -3).flatten(-3, -2).flatten(-4, -3)


def end_rows(tokens_HWC: Tensor, newline: Tensor | None) -> Tensor:
    """Append ``newline``, if there is one, to each row of ``[..., H, W, C]`` and flatten: ``[..., H * (W + 1), C]``."""
    if newline is None:
        return tokens_HWC.flatten(-3, -2)
    ends = newline.expand(*tokens_HWC.shape[:-2], 1, -1)
    return torch.cat([tokens_HWC, ends], dim=-2).flatten(-3, -2)


def scatter(embeds: Tensor, mask: Tensor, features: Tensor, expected: int) -> Tensor:
    """Put ``features`` ``[expected, C]`` at the True positions of ``mask`` ``[1, S]`` into ``embeds`` ``[1, S, C]``.

    PyTorch's own scatter accepts surplus features in silence, so the count is compared first.
    """
    if len(features) != expected:
        raise DsocrError(
            f"the prompt has {expected} image tokens and vision gave {len(features)} features; "
            "prepare the inputs with the preset whose views they hold"
        )
    return embeds.masked_scatter(mask[..., None], features.to(embeds.dtype))


def square(tokens_NC: Tensor) -> Tensor:
    """Lay the tokens of a view ``[..., q * q, C]`` out as its rows: ``[..., q, q, C]``."""
    return tokens_NC.unflatten(-2, (_side(tokens_NC), -1))


def _side(tokens_NC: Tensor) -> int:
    return math.isqrt(tokens_NC.shape[-2])
