"""Fast prefill and decode steps, for the model of any vendor."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from pytest_dsocr.engine.fast.grouped import waits_for_nothing
from pytest_dsocr.engine.fast.prompt import Prefilled, prefill
from pytest_dsocr.engine.fast.slots import Slot, Slots, StaticCache
from pytest_dsocr.engine.fast.step import PLAIN, operations_for, step
from pytest_dsocr.engine.fast.weights import DecoderWeights
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.fast.calls import CapturedCalls
from pytest_dsocr.layers.fast.hooks import Hooks
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.models.architecture import Architecture


class FastModel(EngineModel):
    """Model whose decoder bypasses its modules.

    Prefill calls hooks of layers, which do not change its result. If anything inside a layer has a hook, prefill uses
    the modules, as the readable model does. Decode steps call no hook and are of one page. Several pages together are
    decoded as by the readable model.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        self.weights: DecoderWeights | None = None
        self._slots: Slots | None = None
        self._prompts: CapturedCalls[Prefilled] | None = None
        self.operations = PLAIN
        """Operations of decode steps; chosen when the experts are stacked."""

    def stack_experts(self) -> None:
        """Lay the decoder's weights out for fast steps after loading; the encoders' are not moved."""
        self.weights, decoder = DecoderWeights.of(self), self.arch.decoder
        keys = self.lm_head.weight.new_empty(1, decoder.num_key_value_heads, 0, decoder.head_dim)
        of_ring = self.family.cache.ring, self.max_position_embeddings or self.family.decoding.max_length
        self._slots = Slots(decoder.num_hidden_layers, keys, self.model.inv_freq, *of_ring)
        pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self.prepare_vision(pool, exact=self.weights.round_scores)
        self._prompts = CapturedCalls(self._prompt, pool)
        self.operations = operations_for(self.device)
        self._hooks = Hooks([self.model.layers, self.model.norm, self.lm_head], self.model.decoder_layers())
        self._captures_prompts = waits_for_nothing(self.weights)

    def prepare_vision(self, pool: Any, *, exact: bool) -> None:
        """Prepare the encoder's fast form; a subclass that has one makes it here.

        Args:
            pool: memory that CUDA graphs share.
            exact: compute what the readable engine computes, to the bit.
        """

    def new_cache(self) -> KVCache:
        """Return an empty cache for one row."""
        if self._slots is None or self.casts:
            return super().new_cache()
        return StaticCache(self.arch.decoder.num_hidden_layers, self._slots, self.family.cache)

    def decode(self, embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        """Run the decoder on ``[B, T, C]``, growing ``cache`` by T; float32 logits ``[B, 1 or T, V]``."""
        if self.weights is not None and isinstance(cache, StaticCache) and not self.casts:
            if cache.length and embeds.shape[1] == 1:
                logits = self._step(embeds[:, 0].contiguous(), cache)
                cache.stepped()
                return logits[:, None]
            if not cache.length and len(embeds) == 1 and not self._hooks.inside:
                return self._prefill(embeds[0], cache, every=all_logits)[None]
        return super().decode(embeds, cache, all_logits=all_logits)

    def _prefill(self, x_TC: Tensor, cache: StaticCache, *, every: bool) -> Tensor:
        assert self._prompts is not None
        captured = self._captures_prompts and not every and not self._hooks.watched
        logits, keys, values = self._prompts(x_TC) if captured else self._prompt(x_TC, every=every)
        cache.fill(keys, values)
        return logits.clone()

    def _prompt(self, x_TC: Tensor, *, every: bool = False) -> Prefilled:
        assert self.weights is not None
        device = x_TC.device
        rope = Rope(self.model.inv_freq, torch.arange(len(x_TC), device=device)[None], x_TC.dtype)
        round_router = torch.is_autocast_enabled(device.type)
        with torch.autocast(device.type, enabled=False):
            layers = self.model.decoder_layers()
            return prefill(x_TC, self.weights, rope, layers, round_router=round_router, every=every)

    def _step(self, x_BC: Tensor, cache: StaticCache) -> Tensor:
        slot = cache.ready()
        if x_BC.device.type != "cuda":  # nothing is captured, so that the step need not cover the whole room
            return self._step_on(slot.first(max(cache.lengths_after(1))), x_BC)
        key = (self.operations, torch.is_autocast_enabled("cuda"), id(self.weights))
        if key not in slot.captured:
            slot.captured[key] = CapturedCalls(partial(self._step_on, slot))
        return slot.captured[key](x_BC).clone()

    def _step_on(self, slot: Slot, x_BC: Tensor) -> Tensor:
        assert self.weights is not None
        device = x_BC.device.type
        round_router = torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False):
            logits = step(x_BC, self.weights, slot, self.operations, round_router=round_router)
        slot.advance()
        return logits

    @property
    def casts(self) -> bool:
        """Whether autocast computes in another dtype than the weights', which a fused step does not."""
        kind = self.device.type
        return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != self.dtype

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # a move or a cast gives each parameter a tensor of its own
        self.weights = self._slots = self._prompts = None
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
