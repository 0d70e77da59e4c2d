"""SAM's attention for training: relative positions inside queries and keys, so that a fused kernel does the rest.

The bias of a query and a key is a number for their rows plus one for their columns. A query that carries its numbers
for all rows and columns, beside a key that has a one at its own, gives just that in the product of the two; the matrix
of all pairs, which is most of what the plain way reads and writes, is never made.

Shapes: B views, H x W patches, N heads, D channels of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.sam import Attention, relative_table

CHANNELS_STEP = 8
"""Fused kernels want a multiple of this many channels."""


class FoldedAttention(Attention):
    """The same parameters and the same result as the engine's, to rounding."""

    def forward(self, x_BHWC: Tensor) -> Tensor:
        """Attend over ``[B, H, W, C]``, a view or a window of one."""
        batch, height, width, _ = x_BHWC.shape
        qkv = self.qkv(x_BHWC).view(batch, height * width, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, N, H*W, D]
        spare = q.new_zeros(()).expand(*q.shape[:3], -(q.shape[-1] + height + width) % CHANNELS_STEP)
        ones = _places(height, width, q).expand(batch, self.heads, -1, -1)
        queries = torch.cat([q * q.shape[-1] ** -0.5, *self._by_place(q, height, width), spare], dim=-1)
        keys = torch.cat([k, ones, spare], dim=-1)
        values = F.pad(v, (0, keys.shape[-1] - v.shape[-1]))
        out = F.scaled_dot_product_attention(queries, keys, values, scale=1.0)[..., : v.shape[-1]]
        mixed: Tensor = self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))
        return mixed

    def _by_place(self, q: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Give every query's bias with each row ``[B, N, H*W, H]`` and with each column ``[B, N, H*W, W]``."""
        q_BNHWD = q.unflatten(2, (height, width))
        by_row = torch.einsum("bnhwd,hkd->bnhwk", q_BNHWD, relative_table(self.rel_pos_h, height))
        by_column = torch.einsum("bnhwd,wkd->bnhwk", q_BNHWD, relative_table(self.rel_pos_w, width))
        return by_row.flatten(2, 3), by_column.flatten(2, 3)


def _places(height: int, width: int, like: Tensor) -> Tensor:
    """Give a one at each patch's row and one at its column: ``[H*W, H + W]``."""
    rows = torch.eye(height, device=like.device, dtype=like.dtype).repeat_interleave(width, dim=0)
    columns = torch.eye(width, device=like.device, dtype=like.dtype).repeat(height, 1)
    return torch.cat([rows, columns], dim=1)
