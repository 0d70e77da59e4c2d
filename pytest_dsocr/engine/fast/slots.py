"""Memory that a decode step reads and writes in place (fixed addresses, which a captured graph needs), as a cache.

Shapes: L layers, one row, G key-value heads, S positions that there is room for, D channels of a head.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.layers.cache import ALL_TOKENS, KVCache
from pytest_dsocr.layers.rotary import Rope

LEAST_ROOM = {"cpu": 256, "cuda": 2048}
"""Positions in a first slot: enough for most pages on a GPU, since each size is captured separately."""


@dataclass(frozen=True, eq=False)
class StepPlace:
    """Keys and values of one layer, with the position of the step's token and where it is written."""

    keys: Tensor
    """``[1, G, S, D]``; in a slot, those of all layers: ``[L, 1, G, S, D]``."""
    values: Tensor
    positions: Tensor
    """``[1]`` int64, on the device: position of the new token."""
    targets: Tensor
    """``[1]`` int64: where its keys and values go; without a ring, ``positions`` itself."""
    lasts: Tensor
    """``[1]`` int64: last filled position after the step; without a ring, ``positions`` itself."""
    cos: Tensor
    """``[P, D / 2]``, in the model's dtype, like ``sin``; P is at least S."""
    sin: Tensor


@dataclass(frozen=True, eq=False)
class Slot(StepPlace):
    """The memory of one cache, handed on to another when that one is gone."""

    ring: int | None = None
    prompts: Tensor | None = None
    """``[1]`` int64, with a ring: the prompt's tokens."""
    captured: dict[object, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    """Steps that are captured over this memory, by what they compute."""

    @property
    def room(self) -> int:
        """S."""
        return self.keys.shape[3]

    def first(self, positions: int) -> Slot:
        """Return the same memory with room for ``positions`` only; nothing is captured over it."""
        keys, values = (stored[:, :, :, :positions] for stored in (self.keys, self.values))
        return replace(self, keys=keys, values=values, captured={})

    def place(self, cache: KVCache) -> None:
        """Copy the position of the next step to the device."""
        self.positions.copy_(torch.tensor(cache.seen))
        if self.prompts is not None:
            self.prompts.copy_(torch.tensor(cache.prompts))
            self.targets.copy_(torch.tensor(cache.slots))
            self.lasts.copy_(torch.tensor(cache.lengths_after(1)) - 1)

    def advance(self) -> None:
        """Go on to the next token, on the device."""
        self.positions.add_(1)
        if self.prompts is not None and self.ring is not None:
            self.targets.copy_(self.prompts + (self.positions - self.prompts) % self.ring)
            self.lasts.copy_(torch.minimum(self.positions, self.prompts + self.ring - 1))

    def at(self, layer: int) -> StepPlace:
        """Return one layer's place."""
        return StepPlace(
            self.keys[layer], self.values[layer], self.positions, self.targets, self.lasts, self.cos, self.sin
        )


class Slots:
    """The slots of one model: caches take them, and return them when they are deleted.

    Args:
        layers: L.
        like: a tensor ``[1, G, T, D]`` of keys, for its heads, channels, dtype and device.
        inverse_frequencies: of the rotary positions, ``[D / 2]``.
        ring: of generated tokens, if there is one, whose positions exceed the room, up to ``limit``.
    """

    def __init__(
        self, layers: int, like: Tensor, inverse_frequencies: Tensor, ring: int | None = None, limit: int | None = None
    ) -> None:
        self._ring, self._limit = ring, (limit or 0) if ring else 0
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
        """Free a slot; nobody may read views of it any more."""
        self._free.append(slot)

    def _made(self, room: int) -> Slot:
        like = self._like
        shape = (self._layers, 1, self._heads, room, self._channels)
        at = torch.arange(max(room, self._limit), device=like.device)[None]
        rope = Rope(self._frequencies, at, like.dtype)
        half = self._channels // 2
        cos, sin = (table[0, 0, :, :half].contiguous() for table in (rope.cos, rope.sin))
        memory = like.new_zeros(shape), like.new_zeros(shape)
        positions = torch.zeros(1, dtype=torch.int64, device=like.device)
        if self._ring is None:
            return Slot(*memory, positions, positions, positions, cos, sin)
        targets, lasts, prompts = (torch.zeros_like(positions) for _ in range(3))
        return Slot(*memory, positions, targets, lasts, cos, sin, self._ring, prompts)


class StaticCache(KVCache):
    """Keys and values of one page at addresses that do not move while there is room.

    Prefill fills it like any other; :meth:`ready` returns the slot that a step then writes into. When the cache is
    deleted, the next one takes its memory: a view of it then has the next page's values.

    Args:
        layers: number of layers.
        slots: the model's slots.
        policy: which tokens it keeps.
    """

    def __init__(self, layers: int, slots: Slots, policy: CachePolicy = ALL_TOKENS) -> None:
        super().__init__(layers, policy=policy)
        self._slots = slots
        self._slot: Slot | None = None
        self._let_go: weakref.finalize[..., StaticCache] | None = None
        self._placed: int | None = None
        """The position that is on the device, as ``seen`` counts."""

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[1, G, T, D]`` as :meth:`KVCache.append` does."""
        self._reserve(max(self.lengths_after(keys.shape[2])))
        return super().append(layer, keys, values, positions)

    def fill(self, keys_LGTD: Tensor, values_LGTD: Tensor) -> None:
        """Write the first positions of all layers."""
        length = keys_LGTD.shape[2]
        slot = self._reserve(length)
        slot.keys[:, 0, :, :length] = keys_LGTD
        slot.values[:, 0, :, :length] = values_LGTD
        self.advance(length)

    def ready(self) -> Slot:
        """Return the slot, with room for one more position, and with the next position on the device.

        Raises:
            DsocrError: if a ring has exceeded the last possible position.
        """
        slot = self._reserve(max(self.lengths_after(1)))
        if self.seen[0] >= len(slot.cos):
            raise DsocrError(f"the model has {len(slot.cos)} positions, and all are taken; decode fewer tokens")
        if self._placed != self.seen[0]:
            slot.place(self)
            self._placed = self.seen[0]
        return slot

    def stepped(self) -> None:
        """Count the position that a step has filled, and that it has gone past on the device."""
        self.advance(1)
        self._placed = self.seen[0]

    def _reserve(self, positions: int) -> Slot:
        old = self._slot
        if old is not None and old.room >= positions:
            return old
        self._slot = slot = self._slots.take(positions)
        if old is not None:
            slot.keys[:, :, :, : self.length] = old.keys[:, :, :, : self.length]
            slot.values[:, :, :, : self.length] = old.values[:, :, :, : self.length]
        if self._let_go is not None:
            self._let_go()
        self._let_go = weakref.finalize(self, self._slots.give_back, slot)
        self._keys, self._values = [*slot.keys], [*slot.values]
        self._placed = None
        return slot
