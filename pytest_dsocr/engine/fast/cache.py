"""The static cache: a :class:`~pytest_dsocr.engine.cache.KVCache` whose buffers are a slot's."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.fast.slots import Slot, Slots


class StaticCache(KVCache):
    """Keys and values at addresses that do not move until there is no room left.

    Prefill fills it as any other; :meth:`ready` gives the slot that a step then writes into. When the cache is gone its
    memory goes to the next one: a view that was taken of it holds what the next page writes.

    Args:
        layers: number of layers.
        rows: pages side by side.
        slots: gives the model's slots, once there is something to write.
    """

    def __init__(self, layers: int, rows: int, slots: Callable[[Tensor], Slots]) -> None:
        super().__init__(layers, rows)
        self._slots = slots
        self._slot: Slot | None = None
        self._let_go: weakref.finalize[..., StaticCache] | None = None
        self._placed: list[int] = []
        """Each row's position on the device."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[B, G, T, D]`` as :meth:`KVCache.append` does."""
        self._reserve(self.length + keys.shape[2], keys)
        return super().append(layer, keys, values, positions)

    def fill(self, keys_LGTD: Tensor, values_LGTD: Tensor) -> None:
        """Write the first positions of all layers of one row."""
        length = keys_LGTD.shape[2]
        slot = self._reserve(length, keys_LGTD[:1])
        slot.keys[:, 0, :, :length] = keys_LGTD
        slot.values[:, 0, :, :length] = values_LGTD
        self.advance(length)

    def ready(self) -> Slot:
        """Give the slot, with room for one more position, and with each row's next position on the device."""
        slot = self._reserve(self.length + 1, self.keys(0))
        if self._placed != self.lengths:
            slot.positions.copy_(torch.tensor(self.lengths))
            self._placed = [*self.lengths]
        return slot

    def stepped(self) -> None:
        """Count the position that a step has filled, and that it has gone past on the device."""
        self.advance(1)
        self._placed = [*self.lengths]

    def of_rows(self, caches: Sequence[KVCache]) -> StaticCache:
        """Put single caches side by side in this one, which is empty."""
        self.lengths = [length for cache in caches for length in cache.lengths]
        slot = self._reserve(self.length, caches[0].keys(0))
        for row, cache in enumerate(caches):
            for layer in range(self.layers):
                slot.keys[layer, row, :, : cache.length] = cache.keys(layer)[0]
                slot.values[layer, row, :, : cache.length] = cache.values(layer)[0]
        return self

    def _reserve(self, positions: int, like: Tensor) -> Slot:
        old = self._slot
        if old is not None and old.room >= positions:
            return old
        slots = self._slots(like)
        self._slot = slot = slots.take(len(self.lengths), positions)
        if old is not None:
            slot.keys[:, :, :, : self.length] = old.keys[:, :, :, : self.length]
            slot.values[:, :, :, : self.length] = old.values[:, :, :, : self.length]
        if self._let_go is not None:
            self._let_go()
        self._let_go = weakref.finalize(self, slots.give_back, slot)
        self._keys, self._values = [*slot.keys], [*slot.values]
        self._placed = []
        return slot
