"""Mistakes in the cache and in decode steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Attention, Rope
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import LONG, core_of, fault

LATER = "right at first, then loops or another page"
CACHE = "cache"


def _appended(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the keys and values that a layer reads, given those of the cache and how many are new."""
    right = KVCache.append

    def append(self: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> Any:
        return change(right(self, layer, keys, values, positions), keys.shape[2])

    patch.setattr(KVCache, "append", append)


def _decoded_positions(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the positions of decode steps alone."""
    right = KVCache.positions

    def positions(self: KVCache, new: int, device: torch.device) -> Tensor:
        found = right(self, new, device)
        return change(self, found) if self.length else found

    patch.setattr(KVCache, "positions", positions)


@fault("KVC-04", "The cache of the page before", "prefill", "the second page repeats the first", CACHE, "a second page")
def not_reset(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """One cache is kept for all pages: a second prefill gets the first one's logits."""
    kept: dict[str, Any] = {}
    right = Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        state = right(self, inputs, features, all_logits=all_logits)
        first = kept.setdefault("logits", state.logits.clone())
        state.logits = first
        return state

    patch.setattr(Pipeline, "prefill_with", prefill_with)


@fault(
    "KVC-03",
    "A prefix cache keyed on the ids alone",
    "prefill",
    "the second page repeats the first",
    "page's cache|page before",
    "a second page of as many tokens",
)
def keyed_on_ids(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Image tokens have one id, so two pages of one size have one key."""
    kept: dict[int, Tensor] = {}
    right = Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        if features is not None:
            features = kept.setdefault(inputs.prompt_tokens, features)
        return right(self, inputs, features, all_logits=all_logits)

    patch.setattr(Pipeline, "prefill_with", prefill_with)


@fault("KVC-05", "A cache that slides", "decode", LATER, "does not slide", LONG)
def sliding(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A class of caches with a window was chosen: a step sees the last 512 positions."""
    _appended(patch, lambda kv, new: tuple(t[:, :, -512:] for t in kv) if new == 1 else kv)


@fault("KVC-W1", "Contents lost where the cache grows", "decode", LATER, "grows|every position", LONG)
def lost_in_growth(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The larger buffer is filled with zeros and the smaller one is not copied."""

    def with_room(self: KVCache, buffer: Tensor | None, like: Tensor, total: int) -> Tensor:
        if buffer is not None and buffer.shape[2] >= total:
            return buffer
        rows, heads, _, channels = like.shape
        return like.new_zeros(rows, heads, (total // 256 + 1) * 256, channels)

    patch.setattr(KVCache, "_with_room", with_room)


@fault("KVC-06", "Positions of steps one behind", "decode", LATER, "position")
def one_behind(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The position is that of the last token in the cache."""
    _decoded_positions(patch, lambda cache, found: found - 1)


@fault("KVC-W2", "Positions of steps from nought", "decode", LATER, "position")
def from_nought(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The prompt is not counted."""
    prompt: dict[int, int] = {}
    _decoded_positions(patch, lambda cache, found: found - prompt.setdefault(id(cache), int(found[0, 0])))


@fault("KVC-W3", "Positions that stand still", "decode", LATER, "position")
def standing_still(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Every step has the first one's position."""
    first: dict[int, Tensor] = {}
    _decoded_positions(patch, lambda cache, found: first.setdefault(id(cache), found))


@fault("KVC-W4", "The first position forgotten", "decode", LATER, "all of the prompt|position of the cache too few")
def first_forgotten(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """BOS is not kept."""
    _appended(patch, lambda kv, new: tuple(t[:, :, 1:] for t in kv) if new == 1 else kv)


@fault("KVC-W5", "A step that does not see its own token", "decode", LATER, "last token|own")
def own_token_unseen(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Attention reads the cache before the step is written."""
    _appended(patch, lambda kv, new: tuple(t[:, :, :-1] for t in kv) if new == 1 else kv)


@fault(
    "KVC-W6", "A cache in bfloat16", "decode", "a near tie that goes the other way", "cache.*dtype|dtype.*cache|round"
)
def rounded_cache(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The cache's dtype is a setting of its own."""
    _appended(patch, lambda kv, new: tuple(t.bfloat16().float() for t in kv) if new == 1 else kv)


@fault("KVC-W7", "A cache in 8 bits", "decode", "a near tie that goes the other way", "cache.*dtype|dtype.*cache|round")
def quantised_cache(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Keys and values are stored with one scale for each."""

    def quantised(t: Tensor) -> Tensor:
        scale = t.abs().amax(-1, keepdim=True) / 127
        return (t / scale.clamp(min=1e-9)).round() * scale

    _appended(patch, lambda kv, new: tuple(map(quantised, kv)) if new == 1 else kv)


@fault("KVC-W8", "Each step written over the last", "decode", LATER, "grows by one")
def written_over(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The length of the cache moves in prefill only."""
    right = KVCache.advance
    patch.setattr(KVCache, "advance", lambda self, new: right(self, new) if new > 1 else None)


@fault("KVC-W9", "The last token of the prompt twice", "decode", LATER, "fed once")
def fed_twice(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Prefill's last token is fed again before the first step."""
    right = Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        state = right(self, inputs, features, all_logits=all_logits)
        self.model.decode(state.last_embeds, state.cache)
        return state

    patch.setattr(Pipeline, "prefill_with", prefill_with)


@fault("KVC-W10", "A layer's values read from the layer before", "prefill", LATER, "cache|layer")
def other_layers_values(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """An index of the cache's list is off by one."""
    right = KVCache.append

    def append(self: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> Any:
        both = right(self, layer, keys, values, positions)
        return both if layer == 0 else (both[0], self._values[layer - 1][:, :, : both[1].shape[2]])  # type: ignore[index]

    patch.setattr(KVCache, "append", append)


@fault("KVC-W11", "Unrotated keys in the cache", "decode", LATER, "position|rotat")
def unrotated_keys(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A step's key is written before it is rotated."""
    right = Attention.forward

    def forward(self: Attention, x: Tensor, rope: Rope, cache: KVCache) -> Tensor:
        if x.shape[1] > 1:
            return right(self, x, rope, cache)
        q, k, v = rope.rotate(self._heads(self.q_proj(x))), self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        given: Tensor = self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))
        return given

    patch.setattr(Attention, "forward", forward)


@fault("DEC-01", "Prefill's logits again in each step", "decode", "one token to the limit", "prefill again")
def prefill_again(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The result of a step is thrown away."""

    def step(self: Any, state: Any, embeds: Tensor) -> Tensor:
        self.model.decode(embeds, state.cache)
        logits: Tensor = state.logits
        return logits

    patch.setattr(Pipeline, "_step", step)


@fault("KVC-W12", "Steps fed the token before", "decode", LATER, "fed once|token.*fed|each step")
def late_token(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The buffer of the step's input is filled after the step has been launched."""
    right = Pipeline.decode_step
    before: dict[int, Any] = {}

    def decode_step(self: Any, state: Any, tokens: Any) -> Tensor:
        late = before.get(id(state), tokens)
        before[id(state)] = tokens
        return right(self, state, late)

    patch.setattr(Pipeline, "decode_step", decode_step)


@fault("CEI-W1", "Positions above 1,024 held there", "prefill", LATER, "position", LONG)
def ceiling(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A table of rotations is made for so many positions."""
    right = KVCache.positions
    patch.setattr(KVCache, "positions", lambda self, new, device: right(self, new, device).clamp(max=1023))


@fault("SCH-W1", "Vision in every step", "decode", "slow", "called in steps")
def vision_in_steps(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Features are made again for a step, and thrown away. Here SAM's alone, of a small view."""
    right, sam = DeepseekOCR.decode, core_of(subject).sam_model

    def decode(self: DeepseekOCR, x: Tensor, cache: KVCache, **options: Any) -> Tensor:
        if cache.length:
            sam(x.new_zeros(1, 3, 64, 64))
        return right(self, x, cache, **options)

    patch.setattr(DeepseekOCR, "decode", decode)
