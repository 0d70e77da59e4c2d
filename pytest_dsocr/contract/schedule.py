"""How many image tokens a page takes in the prompt, and how many features its views give.

The two are computed by different rules: the first is what the vendor's code writes into the prompt, the second
follows from the encoders. Where they differ, vision would be scattered over the wrong positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_dsocr.contract.grid import Grid, crop_count
from pytest_dsocr.contract.presets import PATCH_PX, Preset
from pytest_dsocr.contract.special import TextTokenizer

DOWNSAMPLING = 4
"""Patches per token along one side."""


def tokens_per_side(size_px: int) -> int:
    """Give the image tokens along one side of a square view."""
    return math.ceil(size_px // PATCH_PX / DOWNSAMPLING)


def global_token_count(side: int) -> int:
    """Count the tokens of a whole page: ``side`` rows with a newline each, and the separator."""
    return side * (side + 1) + 1


def crop_token_count(side: int, grid: Grid) -> int:
    """Count the tokens of the crops, laid out as one page with a newline to each row; none for ``(1, 1)``."""
    columns, rows = grid
    return side * rows * (side * columns + 1) if crop_count(grid) else 0


def image_token_count(preset: Preset, grid: Grid) -> int:
    """Count the ``<image>`` ids of one page in the prompt."""
    whole = global_token_count(tokens_per_side(preset.view_size))
    return whole + crop_token_count(tokens_per_side(preset.image_size), grid)


def feature_count(view_px: int, crop_px: int, grid: Grid) -> int:
    """Count the vectors that vision gives for a page seen at ``view_px`` with crops of ``crop_px``."""
    return global_token_count(_encoded_side(view_px)) + crop_token_count(_encoded_side(crop_px), grid)


def prompt_ids(
    pieces: Sequence[str], image_tokens: Sequence[int], tokenizer: TextTokenizer
) -> tuple[list[int], list[bool]]:
    """Give the prompt's ids and mask: BOS, then the pieces with each image's ids between them; no EOS.

    Args:
        pieces: the texts around the placeholders, one more than there are images.
        image_tokens: how many ``<image>`` ids each image takes; the mask is True on exactly those.
        tokenizer: encodes each piece by itself.
    """
    texts = [tokenizer.encode(piece) for piece in pieces]
    ids, mask = [tokenizer.special.bos, *texts[0]], [False] * (1 + len(texts[0]))
    for count, text in zip(image_tokens, texts[1:], strict=True):
        ids += [tokenizer.special.image] * count + text
        mask += [True] * count + [False] * len(text)
    return ids, mask


def _encoded_side(size_px: int) -> int:
    """Follow one side through SAM: patches, then two convolutions of width 3, stride 2 and padding 1."""
    side = size_px // PATCH_PX
    for _ in range(2):
        side = (side - 1) // 2 + 1
    return side
