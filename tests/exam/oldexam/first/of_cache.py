"""Mistakes in the cache and in batches, listed before the checks were read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.layers import attention
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import LONG, change_positions, change_rope, mistake

BATCH = "a batch of pages of different lengths"
BUCKET = 64


@mistake("HLD-58", "The last position lost where the cache grows", "decode", LONG)
def last_lost(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """One position too few is copied into the larger buffer."""
    right = KVCache._with_room

    def with_room(self: KVCache, buffer: Tensor | None, like: Tensor, total: int) -> Tensor:
        grown = right(self, buffer, like, total)
        if buffer is not None and grown is not buffer:
            grown[:, :, self.length - 1] = 0
        return grown

    patch.setattr(KVCache, "_with_room", with_room)


def _padding(length: int) -> int:
    return -length % BUCKET


@mistake("HLD-70", "A prompt's padding left in the cache", "decode")
def padding_kept(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Prompts are padded to a multiple of 64, and steps see the padding; their positions go on from the text's end."""
    right = Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        state = right(self, inputs, features, all_logits=all_logits)
        if count := _padding(inputs.prompt_tokens):
            for layer in range(state.cache.layers):
                keys = state.cache.keys(layer)
                zeros = keys.new_zeros(*keys.shape[:2], count, keys.shape[3])
                state.cache.append(layer, zeros, zeros, torch.arange(count, device=keys.device)[None])
            state.cache.advance(count)
            state.cache.padding = count
        return state

    patch.setattr(Pipeline, "prefill_with", prefill_with)
    change_positions(patch, lambda cache, found: found - getattr(cache, "padding", 0))


@mistake("HLD-72", "Steps' positions from the padded length on", "decode")
def padded_positions(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The counter of positions is that of a prompt padded to a multiple of 64."""
    prompts: dict[int, int] = {}

    def moved(cache: KVCache, found: Tensor) -> Tensor:
        return found + _padding(prompts.setdefault(id(cache), cache.length))

    change_positions(patch, moved)


@mistake("HLD-73", "One buffer for all logits", "decode", unseen="what a subject gives is copied: a buffer is allowed")
def one_buffer(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A captured graph writes each step's logits to one place, so that earlier ones change."""
    kept: dict[str, Tensor] = {}
    right = Pipeline._step

    def step(self: Any, state: Any, embeds: Tensor) -> Tensor:
        logits = right(self, state, embeds)
        state.logits = kept.setdefault("logits", torch.empty_like(logits)).copy_(logits)
        given: Tensor = state.logits
        return given

    patch.setattr(Pipeline, "_step", step)


@mistake("HLD-74", "A cache from the pool, not cleared", "read", "a page shorter than the one before")
def not_cleared(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Caches are used again, and steps of a shorter page see the tail of a longer one: `read` after its own stages."""
    pool: list[KVCache] = []
    right, append = DeepseekOCR.new_cache, KVCache.append

    def new_cache(self: DeepseekOCR) -> KVCache:
        cache = right(self)
        if pool:
            used = pool.pop()
            cache.stale = used.length  # type: ignore[attr-defined]
            cache._keys, cache._values = list(used._keys), list(used._values)
        pool.append(cache)
        return cache

    def seen(self: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        both = append(self, layer, keys, values, positions)
        stale = getattr(self, "stale", 0)
        if keys.shape[2] > 1 or stale <= both[0].shape[2]:
            return both
        of_keys, of_values = self._keys[layer], self._values[layer]
        assert of_keys is not None
        assert of_values is not None
        return of_keys[:, :, :stale], of_values[:, :, :stale]

    patch.setattr(DeepseekOCR, "new_cache", new_cache)
    patch.setattr(KVCache, "append", seen)


@mistake("HLD-75", "Shorter rows see the padding", "decode", BATCH)
def padding_seen(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A batch has no mask of its rows' lengths."""
    right = attention._visible
    patch.setattr(attention, "_visible", lambda q, k, lengths: right(q, k, None))


@mistake("HLD-76", "One position for all rows", "decode", BATCH)
def one_position(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Rows are rotated by the longest row's position."""
    change_rope(patch, lambda inverse, positions, _: (inverse, positions.amax(0, keepdim=True).expand_as(positions)))


@mistake("HLD-77", "A batch ends with its first row", "read", BATCH)
def first_row_ends(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """any() in place of all()."""
    right = pipeline.generate

    def steps(pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Any:
        for tokens in right(pipeline, state, prompts, policy, pad):
            yield tokens
            if policy.eos_id in tokens:
                return

    patch.setattr(engine, "generate", steps)
