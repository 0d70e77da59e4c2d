"""The engine's model with fast decode steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.fast.cache import StaticCache
from pytest_dsocr.engine.fast.graph import CapturedStep
from pytest_dsocr.engine.fast.slots import Slot, Slots
from pytest_dsocr.engine.fast.step import PLAIN, operations_for, step
from pytest_dsocr.engine.fast.weights import DecoderWeights
from pytest_dsocr.engine.model import DeepseekOCR


class FastDeepseekOCR(DeepseekOCR):
    """The same model: vision and prefill go through its modules, and a step of one token past them.

    What hooks a module is told of vision and of prefill, and of no step.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        self.weights: DecoderWeights | None = None
        self._slots: Slots | None = None
        self.operations = PLAIN
        """What steps compute with; chosen as the experts are stacked."""

    def stack_experts(self) -> None:
        """Lay the decoder's weights out for fast steps, once they are loaded."""
        self.weights, self._slots = DecoderWeights.of(self), None
        self.operations = operations_for(self.device)

    def new_cache(self) -> StaticCache:
        """Give an empty cache for one row."""
        return self._cache_of(1)

    def join_caches(self, caches: Sequence[KVCache]) -> StaticCache:
        """Put single rows' caches side by side."""
        return self._cache_of(len(caches)).of_rows(caches)

    def decode(self, embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        """Run the decoder on ``[B, T, C]``, growing ``cache`` by T; float32 logits ``[B, 1 or T, V]``."""
        fast = isinstance(cache, StaticCache) and cache.length and embeds.shape[1] == 1
        if self.weights is None or not fast or _casts(self.dtype, self.device):
            return super().decode(embeds, cache, all_logits=all_logits)
        assert isinstance(cache, StaticCache)
        logits = self._step(embeds[:, 0].contiguous(), cache.ready(), self.weights)
        cache.stepped()
        return logits[:, None]

    def _step(self, x_BC: Tensor, slot: Slot, weights: DecoderWeights) -> Tensor:
        device = x_BC.device.type
        round_router, operations = torch.is_autocast_enabled(device), self.operations

        def body(x_BC: Tensor) -> Tensor:
            with torch.autocast(device, enabled=False):
                return step(x_BC, weights, slot, operations, round_router=round_router)

        if device != "cuda":
            logits = body(x_BC)
            slot.positions.add_(1)
            return logits
        key = (operations, round_router, id(weights))
        if key not in slot.captured:
            slot.captured[key] = CapturedStep(body, x_BC, slot)
        return slot.captured[key](x_BC)

    def _cache_of(self, rows: int) -> StaticCache:
        return StaticCache(self.arch.decoder.num_hidden_layers, rows, self._slots_like)

    def _slots_like(self, keys: Tensor) -> Slots:
        if self._slots is None:
            self._slots = Slots(self.arch.decoder.num_hidden_layers, keys, self.model.inv_freq)
        return self._slots

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.weights = self._slots = None  # a move or a cast gives each parameter a tensor of its own
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


def _casts(dtype: torch.dtype, device: torch.device) -> bool:
    """Say whether autocast is on and computes in another dtype than the weights', which a fused step does not."""
    return torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) != dtype
