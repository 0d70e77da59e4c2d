"""Key-value caches with another memory, for a model without a ring.

Shapes: B rows, G key-value heads, S positions, T new positions, D channels of a head, P blocks of a row.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.decoder import DecoderAttention
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Forward, Variant, copied, with_forward

LENGTH = 4096
"""Positions of a static cache, more than any page of these runs takes."""
BLOCK, BLOCKS = 16, 256
"""Positions of a block, and blocks of a row."""


def static_cache(setup: Setup) -> Variant:
    """Attend to a cache of full length, with a mask over what is not filled."""

    def made(own: DecoderAttention) -> Forward:
        def forward(x_BTC: Tensor, rope: Rope, cache: StaticCache) -> Tensor:
            q, k = (rope.rotate(own.split_heads(project(x_BTC))) for project in (own.q_proj, own.k_proj))
            cache.append(own.layer, k, own.split_heads(own.v_proj(x_BTC)), rope.positions)
            keys, values = (repeat_heads(whole, q) for whole in cache.whole(own.layer))
            scores = (q @ keys.transpose(2, 3)) / math.sqrt(own.head_dim)
            ahead = torch.arange(keys.shape[2], device=q.device) > rope.positions[:, None, :, None]
            weights = scores.masked_fill(ahead, -torch.inf).softmax(dim=-1, dtype=torch.float32).to(q.dtype)
            return own.o_proj((weights @ values).transpose(1, 2).flatten(2))

        return forward

    return _with_cache(with_forward(copied(setup), DecoderAttention, made), StaticCache)


def paged_cache(setup: Setup) -> Variant:
    """Keep positions in blocks that are not in order, and gather them for attention."""
    return _with_cache(copied(setup), PagedCache)


class StaticCache(KVCache):
    """A cache that has its whole memory from the beginning."""

    def whole(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values with the positions that are not filled."""
        keys, values = self._keys[layer], self._values[layer]
        assert keys is not None
        assert values is not None
        return keys, values

    def _with_room(self, buffer: Tensor | None, like: Tensor, total: int) -> Tensor:
        if buffer is not None and buffer.shape[2] >= max(total, LENGTH):
            return buffer
        rows, heads, _, channels = like.shape
        grown = like.new_zeros(rows, heads, LENGTH * -(-total // LENGTH), channels)
        if buffer is not None:
            grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown


class PagedCache(KVCache):
    """A cache of blocks ``[B * P, G, 16, D]`` a layer, and a table of the blocks that each row has, the last first."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[B, G, T, D]`` of layer ``layer``; return copies of all its keys and values."""
        for store, tensor in ((self._keys, keys), (self._values, values)):
            store[layer] = self._written(store[layer], tensor, positions)
        total = max(self.lengths_after(keys.shape[2]))
        return self._gathered(self._keys[layer], total), self._gathered(self._values[layer], total)

    @classmethod
    def join(cls, caches: Sequence[KVCache]) -> Self:
        """Put single caches side by side as the rows of one batch."""
        joined = super().join(caches)
        assert isinstance(joined, cls)
        for store in (joined._keys, joined._values):
            for layer, dense in enumerate(store):
                assert dense is not None
                at = torch.arange(joined.length, device=dense.device).expand(len(dense), -1)
                store[layer] = joined._written(None, dense, at)
        return joined

    def _filled(self, buffer: Tensor | None) -> Tensor:
        return self._gathered(buffer, self.length)

    def _written(self, pool: Tensor | None, tensor_BGTD: Tensor, positions_BT: Tensor) -> Tensor:
        rows, heads, _, channels = tensor_BGTD.shape
        if pool is None:
            pool = tensor_BGTD.new_zeros(rows * BLOCKS, heads, BLOCK, channels)
        blocks = self._table(pool.device).gather(1, positions_BT // BLOCK)
        pool[blocks, :, positions_BT % BLOCK] = tensor_BGTD.transpose(1, 2)
        return pool

    def _gathered(self, pool: Tensor | None, length: int) -> Tensor:
        if pool is None:
            raise IndexError("nothing has been written to this layer yet")
        blocks = self._table(pool.device)[:, : -(-length // BLOCK)]
        return pool[blocks].transpose(1, 2).flatten(2, 3)[:, :, :length]

    def _table(self, device: torch.device) -> Tensor:
        """Return the block of each row's positions: ``[B, P]`` int64."""
        rows = len(self.seen)
        return torch.arange(rows * BLOCKS, device=device).flip(0).view(rows, BLOCKS)


def _with_cache(subject: Variant, kind: type[KVCache]) -> Variant:
    model: Any = subject.engine.model
    assert not model.family.cache.ring, "these caches keep every token"
    model.new_cache, model.join_caches = partial(kind, model.arch.decoder.num_hidden_layers), kind.join
    return subject
