"""The key-value cache: one buffer a layer, grown by doubling, so that a step's cost does not grow with its index.

A ring of generated tokens follows the prompt: the oldest token is overwritten, and positions continue to grow.

Shapes: B rows, G key-value heads, S positions, T new positions, D channels of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import CachePolicy

INITIAL_CAPACITY = 256
ALL_TOKENS = CachePolicy()


class KVCache:
    """Keys and values of every layer, and the number of tokens that each row has received.

    Rows are aligned at position 0. They may differ in length (a batch of pages); then steps are of one token.
    """

    def __init__(self, layers: int, rows: int = 1, policy: CachePolicy = ALL_TOKENS) -> None:
        self.policy = policy
        self.prompts, self.seen = [0] * rows, [0] * rows
        """For each row, the number of tokens of its prompt, and of all its tokens: the next one's position."""
        self._keys: list[Tensor | None] = [None] * layers
        self._values: list[Tensor | None] = [None] * layers

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self._keys)

    @property
    def lengths(self) -> list[int]:
        """Positions filled in each row."""
        return self.lengths_after(0)

    def lengths_after(self, new: int) -> list[int]:
        """Return the number of positions that each row has filled after ``new`` more tokens."""
        rows = zip(self.prompts, self.seen, strict=True)
        return [self.policy.length(prompt or new, seen + new - (prompt or new)) for prompt, seen in rows]

    @property
    def length(self) -> int:
        """Positions filled in the longest row."""
        return max(self.lengths)

    @property
    def is_ragged(self) -> bool:
        """Whether the rows differ in length."""
        return len({*zip(self.prompts, self.seen, strict=True)}) > 1

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one more position of one row takes, keys and values of all layers."""
        buffers = [b for b in (*self._keys, *self._values) if b is not None]
        return sum(b.shape[1] * b.shape[3] * b.element_size() for b in buffers)

    def keys(self, layer: int) -> Tensor:
        """Return a view of layer ``layer``'s keys, ``[B, G, S, D]``."""
        return self._filled(self._keys[layer])

    def values(self, layer: int) -> Tensor:
        """Return a view of layer ``layer``'s values, ``[B, G, S, D]``."""
        return self._filled(self._values[layer])

    def positions(self, new: int, device: torch.device) -> Tensor:
        """Return the positions that the next ``new`` tokens of each row take: ``[B, T]`` int64."""
        if self.is_ragged:
            return torch.tensor(self.seen, device=device)[:, None]
        start = self.seen[0]
        return torch.arange(start, start + new, device=device).expand(len(self.seen), new)

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[B, G, T, D]`` of layer ``layer``; return views of all its keys and values, the new ones included.

        The lengths move when :meth:`advance` is called, once all layers have written.
        """
        new, first = keys.shape[2], self.slots[0]
        total = max(self.lengths_after(new))
        if first + new > total:
            raise DsocrError(
                f"{new} tokens at once do not fit the end of a ring of {self.policy.ring}; feed each alone"
            )
        buffers = []
        for store, tensor in ((self._keys, keys), (self._values, values)):
            buffer = self._with_room(store[layer], tensor, total)
            if self.is_ragged:
                rows = torch.arange(len(self.seen), device=tensor.device)
                at = torch.tensor(self.slots, device=tensor.device) if self.policy.ring else positions[:, 0]
                buffer[rows, :, at] = tensor[:, :, 0]
            else:
                buffer[:, :, first : first + new] = tensor
            store[layer] = buffer
            buffers.append(buffer[:, :, :total])
        return buffers[0], buffers[1]

    def advance(self, new: int) -> None:
        """Count ``new`` more tokens for every row; the first are its prompt."""
        self.prompts = [prompt or new for prompt in self.prompts]
        self.seen = [seen + new for seen in self.seen]

    def drop_last(self) -> None:
        """Forget the last token of every row."""
        self.seen = [seen - 1 for seen in self.seen]

    @property
    def slots(self) -> list[int]:
        """Return the slot for each row's next token."""
        return [self.policy.slot(prompt, seen - prompt) for prompt, seen in zip(self.prompts, self.seen, strict=True)]

    @classmethod
    def join(cls, caches: Sequence[KVCache]) -> KVCache:
        """Put single caches side by side as the rows of one batch."""
        joined = cls(caches[0].layers, len(caches), caches[0].policy)
        joined.prompts = [prompt for cache in caches for prompt in cache.prompts]
        joined.seen = [seen for cache in caches for seen in cache.seen]
        for layer in range(joined.layers):
            joined._keys[layer] = _stack([cache.keys(layer) for cache in caches], joined.length)
            joined._values[layer] = _stack([cache.values(layer) for cache in caches], joined.length)
        return joined

    def _filled(self, buffer: Tensor | None) -> Tensor:
        if buffer is None:
            raise IndexError("nothing has been written to this layer yet")
        return buffer[:, :, : self.length]

    def _with_room(self, buffer: Tensor | None, like: Tensor, total: int) -> Tensor:
        if buffer is not None and buffer.shape[2] >= total:
            return buffer
        rows, heads, _, channels = like.shape
        capacity = INITIAL_CAPACITY if buffer is None else buffer.shape[2]
        while capacity < total:
            capacity *= 2
        grown = like.new_zeros(rows, heads, capacity, channels)
        if buffer is not None:
            grown[:, :, : self.length] = buffer[:, :, : self.length]
        return grown


def _stack(rows: Sequence[Tensor], length: int) -> Tensor:
    return torch.cat([F.pad(row, (0, 0, 0, length - row.shape[2])) for row in rows])
