"""SAM's attention as a Triton kernel, for which no window is cut, none is filled up, and no mask is written.

Needs the triton package. Shapes as in :mod:`~pytest_dsocr.layers.fast.sam`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from pytest_dsocr.layers.fast import sam_kernel as kernels


class LaunchBlock(NamedTuple):
    """Queries of a program, keys that it reads at once (whole rows), its warps of threads, and loads under way."""

    queries: int
    keys: int
    warps: int
    stages: int


WINDOW, WHOLE = LaunchBlock(128, 16, 4, 2), LaunchBlock(64, 64, 4, 3)
SMALL_SIDE = 16
"""Largest side of a window, in patches; a larger side is a whole view's."""


def attend(qkv_BHWX: Tensor, padding_X: Tensor, offsets_LD: Tensor, heads: int, side: int) -> Tensor:
    """Compute ``sam.attend``, equal within rounding."""
    views, height, width, joined = qkv_BHWX.shape
    channels, block = joined // 3, WINDOW if side <= SMALL_SIDE else WHOLE
    head_dim, up = channels // heads, next_power_of_2(side)
    qkv_BHWX = qkv_BHWX.contiguous()
    q_NTD = qkv_BHWX.view(-1, joined)[:, :channels].unflatten(1, (heads, head_dim)).transpose(0, 1)
    scores_NTL = torch.bmm(q_NTD, offsets_LD.T.expand(heads, -1, -1))
    out = qkv_BHWX.new_empty(views, height, width, channels)
    of_heads = {"N": heads, "D": head_dim, "D_UP": max(16, next_power_of_2(head_dim))}  # the least that tl.dot takes
    window = {"SIDE": side, "LENGTH": len(offsets_LD), "PADDED": height % side != 0 or width % side != 0}
    program = {"QUERIES": block.queries, "UP": up, "ROWS": max(1, block.keys // up)}
    sizes = {**of_heads, **window, **program, "num_warps": block.warps, "num_stages": block.stages}
    windows, tokens, scale = cdiv(height, side) * cdiv(width, side), views * height * width, 1 / math.sqrt(head_dim)
    kernels.attend_kernel[(cdiv(side * side, block.queries), heads, views * windows)](
        qkv_BHWX, padding_X, scores_NTL, out, tokens, height, width, scale, side - 1, 3 * side - 2, **sizes
    )
    return out
