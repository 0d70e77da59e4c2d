"""SAM with tables made once for each size, windows cut after the joined product, and no unnecessary copy.

Shapes: B views, H x W patches, C channels, N heads, D channels of a head. L offsets of a relative position: those of
rows, then those of columns. s x s patches attend to each other: a window, or the whole view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.fast.hooks import called
from pytest_dsocr.layers.norms import LayerNorm2d
from pytest_dsocr.layers.sam import Sam, SamAttention, SamBlock, join_windows, resize_grid, resize_line, split_windows

ALIGNED = 8
"""Rows of masks and tables are a multiple of it, as kernels for bf16 want them."""

Attend = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
"""Joined queries, keys and values ``[B, H, W, 3C]``, padding's ``[3C]``, offsets ``[L, D]``, N, s: ``[B, H, W, C]``."""


@dataclass(frozen=True)
class Tables:
    """Tables that depend only on the weights and a view's size."""

    positions: Tensor
    """``[H, W, C]``."""
    offsets: tuple[Tensor, ...]
    """``[L, D]`` for each block: row ``k - q + s - 1`` is for key row ``k`` and query row ``q``; columns follow."""

    @classmethod
    def of(cls, sam: Sam, side: int) -> Tables:
        """Make the tables for views of ``side`` x ``side`` patches."""
        offsets = (offsets_of(block.attn, block.window or side) for block in blocks_of(sam))
        return cls(resize_grid(sam.pos_embed[0], side), tuple(offsets))


def encode(sam: Sam, pixels: Tensor, tables: Tables, attend: Attend) -> Tensor:
    """Encode views ``[B, 3, S, S]``: ``[B, c, S/64, S/64]``, its channels last in memory. Blocks' hooks are called."""
    x_BHWC = _patches(sam, pixels) + tables.positions
    for block, offsets in zip(blocks_of(sam), tables.offsets, strict=True):
        x_BHWC = called(block, partial(_through, block, offsets, attend), x_BHWC)
    neck, narrow = sam.neck, sam.neck[0].get_parameter("weight").flatten(1)
    x_BHWC = _normalise(F.linear(x_BHWC, narrow), neck[1])
    x_BHWC = _normalise(neck[2](x_BHWC.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), neck[3])
    return sam.net_3(sam.net_2(x_BHWC.permute(0, 3, 1, 2)))


def attend(qkv_BHWX: Tensor, padding_X: Tensor, offsets_LD: Tensor, heads: int, side: int) -> Tensor:
    """Attend inside windows of ``side`` x ``side``, which are filled up with ``padding``: an :data:`Attend`."""
    _, height, width, _ = qkv_BHWX.shape
    windows = split_windows(_filled(qkv_BHWX, padding_X, side), side)
    q, k, v = windows.view(len(windows), side * side, 3, heads, -1).permute(2, 0, 3, 1, 4)  # each [B', N, s*s, D]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=_position_bias(q, offsets_LD, side))
    return join_windows(mixed.transpose(1, 2).reshape(len(windows), side, side, -1), height, width)


def blocks_of(sam: Sam) -> list[SamBlock]:
    """Return the blocks, with their type."""
    return [block for block in sam.blocks if isinstance(block, SamBlock)]


def offsets_of(attention: SamAttention, side: int) -> Tensor:
    """Return a block's table of relative positions, resized to ``side``: see :attr:`Tables.offsets`."""
    tables = [resize_line(table, 2 * side - 1).flip(0) for table in (attention.rel_pos_h, attention.rel_pos_w)]
    both = torch.cat(tables)
    return F.pad(both, (0, 0, 0, -len(both) % ALIGNED))


def _through(block: SamBlock, offsets: Tensor, attend: Attend, x_BHWC: Tensor) -> Tensor:
    attention = block.attn
    qkv, side = attention.qkv(block.norm1(x_BHWC)), block.window or x_BHWC.shape[1]
    x_BHWC = x_BHWC + attention.proj(attend(qkv, attention.qkv.bias, offsets, attention.heads, side))
    return x_BHWC + block.mlp(block.norm2(x_BHWC))


def _patches(sam: Sam, pixels: Tensor) -> Tensor:
    """Compute the patch embedding as a matrix product instead of a convolution: ``[B, H, W, C]``."""
    layer = sam.patch_embed.proj
    size = layer.kernel_size[0]
    patches = pixels.unflatten(3, (-1, size)).unflatten(2, (-1, size)).permute(0, 2, 4, 1, 3, 5)
    return F.linear(patches.flatten(3), layer.weight.flatten(1), layer.bias)


def _normalise(x_BHWC: Tensor, norm: nn.Module) -> Tensor:
    assert isinstance(norm, LayerNorm2d)
    return F.layer_norm(x_BHWC, norm.weight.shape, norm.weight, norm.bias, norm.eps)


def _filled(qkv_BHWX: Tensor, padding_X: Tensor, side: int) -> Tensor:
    """Fill up to whole windows with the joined product of zeros."""
    batch, height, width, _ = qkv_BHWX.shape
    if height % side == 0 and width % side == 0:
        return qkv_BHWX
    filled = padding_X.repeat(batch, height + -height % side, width + -width % side, 1)
    filled[:, :height, :width] = qkv_BHWX
    return filled


def _position_bias(q: Tensor, offsets_LD: Tensor, side: int) -> Tensor:
    """Score of every query ``[B, N, s*s, D]`` with every row's and column's offset: ``[B, N, s*s, s*s]``.

    One product gives the scores of all offsets. The first offset that a query needs moves by one place from row to row,
    so a view with strides picks them.
    """
    batch, heads, count, _ = q.shape
    scores = (q @ offsets_LD.T).contiguous()  # [B, N, s*s, L]
    length = len(offsets_LD)
    outer = (heads * count * length, count * length)
    shape = (batch, heads, side, side, side)
    by_row = scores.as_strided(shape, (*outer, side * length - 1, length, 1), side - 1)
    by_column = scores.as_strided(shape, (*outer, side * length, length - 1, 1), 3 * side - 2)
    mask = q.new_empty(batch, heads, count, count + -count % ALIGNED)[..., :count]
    torch.add(
        by_row[..., None], by_column[..., None, :], out=mask.unflatten(3, (side, side)).unflatten(2, (side, side))
    )
    return mask
