"""Memory that a decode step reads and writes in place (fixed addresses, which a captured graph needs), as a cache.

Shapes: L layers, one row, G key-value heads, S positions that there is room for, D channels of a head.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Rope

LEAST_ROOM = {"cpu": 256, "cuda": 2048}
"""Positions that a first slot has room for: on a GPU enough for most pages, as each size is captured anew."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where one layer's keys and values are, and which positions the step fills."""

    keys: Tensor
    """``[1, G, S, D]``; in a slot, those of all layers: ``[L, 1, G, S, D]``."""
    values: Tensor
    positions: Tensor
    """``[1]`` int64, on the device: the new token's."""
    cos: Tensor
    """``[S, D / 2]``, in the model's dtype, as ``sin``."""
    sin: Tensor


@dataclass(frozen=True, eq=False)
class Slot(Place):
    """The memory of one cache, handed on to another when that one is gone."""

    captured: dict[object, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    """Steps that are captured over this memory, by what they compute."""

    @property
    def room(self) -> int:
        """S."""
        return self.keys.shape[3]

    def first(self, positions: int) -> Slot:
        """Return the same memory with no more room than ``positions``; nothing is captured over it."""
        keys, values = (stored[:, :, :, :positions] for stored in (self.keys, self.values))
        return Slot(keys, values, self.positions, self.cos, self.sin)

    def at(self, layer: int) -> Place:
        """Return one layer's place."""
        return Place(self.keys[layer], self.values[layer], self.positions, self.cos, self.sin)


class Slots:
    """The slots of one model: taken by caches, given back when these are gone.

    Args:
        layers: L.
        like: a tensor ``[1, G, T, D]`` of keys, for its heads, channels, dtype and device.
        inverse_frequencies: of the rotary positions, ``[D / 2]``.
    """

    def __init__(self, layers: int, like: Tensor, inverse_frequencies: Tensor) -> None:
        _, self._heads, _, self._channels = like.shape
        self._layers, self._like, self._frequencies = layers, like.new_empty(0), inverse_frequencies
        self._free: list[Slot] = []

    def take(self, positions: int) -> Slot:
        """Return a slot with room for ``positions`` at least; its values are finite."""
        room = LEAST_ROOM[self._like.device.type]
        while room < positions:
            room *= 2
        for slot in reversed(self._free):
            if slot.room == room:
                self._free.remove(slot)
                slot.values.zero_()  # a weight of 0 does not hide a NaN that another page left
                return slot
        return self._made(room)

    def give_back(self, slot: Slot) -> None:
        """Let a slot be taken again; whoever has views of it must not read them any more."""
        self._free.append(slot)

    def _made(self, room: int) -> Slot:
        like = self._like
        shape = (self._layers, 1, self._heads, room, self._channels)
        at = torch.arange(room, device=like.device)[None]
        rope = Rope(self._frequencies, at, like.dtype)
        half = self._channels // 2
        cos, sin = (table[0, 0, :, :half].contiguous() for table in (rope.cos, rope.sin))
        positions = torch.zeros(1, dtype=torch.int64, device=like.device)
        return Slot(like.new_zeros(shape), like.new_zeros(shape), positions, cos, sin)


class StaticCache(KVCache):
    """Keys and values of one page at addresses that do not move until there is no room left.

    Prefill fills it as any other; :meth:`ready` gives the slot that a step then writes into. When the cache is gone its
    memory goes to the next one: a view that was taken of it holds what the next page writes.

    Args:
        layers: number of layers.
        slots: gives the model's slots, once there is something to write.
    """

    def __init__(self, layers: int, slots: Callable[[Tensor], Slots]) -> None:
        super().__init__(layers)
        self._slots = slots
        self._slot: Slot | None = None
        self._let_go: weakref.finalize[..., StaticCache] | None = None
        self._placed: int | None = None
        """The position that is on the device."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[1, G, T, D]`` as :meth:`KVCache.append` does."""
        self._reserve(self.length + keys.shape[2], keys)
        return super().append(layer, keys, values, positions)

    def fill(self, keys_LGTD: Tensor, values_LGTD: Tensor) -> None:
        """Write the first positions of all layers."""
        length = keys_LGTD.shape[2]
        slot = self._reserve(length, keys_LGTD[:1])
        slot.keys[:, 0, :, :length] = keys_LGTD
        slot.values[:, 0, :, :length] = values_LGTD
        self.advance(length)

    def ready(self) -> Slot:
        """Return the slot, with room for one more position, and with the next position on the device."""
        slot = self._reserve(self.length + 1, self.keys(0))
        if self._placed != self.length:
            slot.positions.copy_(torch.tensor(self.lengths))
            self._placed = self.length
        return slot

    def stepped(self) -> None:
        """Count the position that a step has filled, and that it has gone past on the device."""
        self.advance(1)
        self._placed = self.length

    def _reserve(self, positions: int, like: Tensor) -> Slot:
        old = self._slot
        if old is not None and old.room >= positions:
            return old
        slots = self._slots(like)
        self._slot = slot = slots.take(positions)
        if old is not None:
            slot.keys[:, :, :, : self.length] = old.keys[:, :, :, : self.length]
            slot.values[:, :, :, : self.length] = old.values[:, :, :, : self.length]
        if self._let_go is not None:
            self._let_go()
        self._let_go = weakref.finalize(self, slots.give_back, slot)
        self._keys, self._values = [*slot.keys], [*slot.values]
        self._placed = None
        return slot
