"""Mistakes in the decoder, its experts and its cache: the half whose outcome is seen last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import fusion, pipeline
from pytest_dsocr.layers import attention
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.decoder import DecoderAttention as Attention
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import (
    LONG,
    change_cache,
    change_rope,
    change_scores,
    core_of,
    mistake,
    quantise_experts,
    run_instead,
    standing_still,
)

WINDOW, ROOM = 1024, 1280


@mistake("NEW-055", "Features one position late", "prefill")
def scatter_shifted(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The first image position is searched without the BOS: features start one too late, wrapping round."""
    right = fusion.scatter
    rolled: Any = lambda embeds, mask, features, count: right(embeds, mask, features.roll(1, 0), count)  # noqa: E731
    patch.setattr(pipeline, "scatter", rolled)


@mistake("NEW-059", "Rotary pairs interleaved", "prefill")
def rope_interleaved(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Neighbouring channels are rotated together, GGML's default, where halves are."""

    def rotate(self: Rope, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        cos, sin = self.cos[..., :half], self.sin[..., :half]
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)

    patch.setattr(Rope, "rotate", rotate)


@mistake("NEW-060", "Positions stand still on the image", "prefill")
def image_one_position(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """All tokens of an image share one position, as in multimodal rotary embeddings."""
    of_image: dict[str, Tensor] = {}
    skipped: dict[KVCache, int] = {}
    prefill, right = Pipeline.prefill_with, KVCache.positions

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        of_image["mask"] = inputs.images_seq_mask[0]
        return prefill(self, inputs, features, all_logits=all_logits)

    def positions(self: KVCache, new: int, device: torch.device) -> Tensor:
        mask = of_image.get("mask", torch.empty(0))
        if self.length or len(mask) != new:
            return right(self, new, device) - skipped.get(self, 0)
        again = mask & torch.cat([mask[:1] & False, mask[:-1]])
        skipped[self] = int(again.sum())
        return ((~again).cumsum(0) - 1)[None]

    patch.setattr(Pipeline, "prefill_with", prefill_with)
    patch.setattr(KVCache, "positions", positions)


@mistake("NEW-064", "Final norm left out", "prefill")
def final_norm_lost(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Logits are computed from the last layer's output."""
    run_instead(patch, core_of(subject).norm, lambda x: x)


@mistake("NEW-065", "Positions in bfloat16", "prefill", LONG)
def positions_bf16(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Positions are cast before they are multiplied by the frequencies: above 256 neighbours coincide."""
    change_rope(patch, lambda inverse, positions, _: (inverse, positions.bfloat16().float()))


@mistake("NEW-067", "Sliding window of 1024", "prefill", "more than 1,024 positions")
def window_1024(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The runtime's default window is kept from another model."""
    right = attention._visible

    def visible(q: Tensor, k: Tensor, lengths: Any) -> Tensor | None:
        causal = right(q, k, lengths)
        queries, keys = q.shape[2], k.shape[2]
        if lengths is not None or keys <= WINDOW:
            return causal
        at = torch.arange(keys, device=q.device)
        near = (at > at[keys - queries :, None] - WINDOW)[None, None]
        return near if causal is None else causal & near

    patch.setattr(attention, "_visible", visible)


@mistake("NEW-072", "Router computed in bfloat16", "prefill")
def router_bf16(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The router's product is made in bfloat16, where the vendor's is in float32."""
    bf16: Any = lambda router, x: F.linear(x.bfloat16(), router.weight.bfloat16())  # noqa: E731
    change_scores(patch, lambda router, x: bf16(router, x).float().softmax(dim=-1))


@mistake("NEW-073", "Routing weights on the input", "prefill")
def weights_on_input(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Tokens are scaled before the expert and not after it."""

    def forward(self: MixtureOfExperts, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        chosen, weights = self.gate(tokens)
        parts = [
            self.run_looped((tokens * weights[:, k : k + 1]).to(tokens.dtype), chosen[:, k : k + 1])
            for k in range(chosen.shape[1])
        ]
        given: Tensor = torch.stack(parts).sum(dim=0).to(x.dtype).view_as(x) + self.shared_experts(x)
        return given

    patch.setattr(MixtureOfExperts, "forward", forward)


@mistake("NEW-074", "Experts in eight bits", "prefill")
def experts_int8(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Experts' weights are quantised to int8 with one scale a matrix."""
    quantise_experts(patch, subject, lambda weight: weight.max())


@mistake("NEW-078", "Cache of 1280 positions as a ring", "decode", "more than 1,280 positions")
def ring_of_1280(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """There is room for 1,280 positions; later ones overwrite the first."""
    change_cache(patch, lambda both, new: tuple(one[:, :, -ROOM:] for one in both) if new == 1 else both)


@mistake("NEW-079", "Keys of steps cached before rotation", "decode")
def keys_unrotated(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """In steps the cache takes the key before the rotation; the step itself has it rotated."""
    right = Attention.forward

    def forward(self: Attention, x: Tensor, rope: Rope, cache: KVCache) -> Tensor:
        made = right(self, x, rope, cache)
        stored = cache._keys[self.layer]
        if x.shape[1] == 1 and stored is not None:
            stored[:, :, cache.length] = self.split_heads(self.k_proj(x))[:, :, 0]
        return made

    patch.setattr(Attention, "forward", forward)


@mistake("NEW-080", "Prefix cache keyed by ids", "prefill", "a second page of one grid")
def prefix_cache(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The keys and values of an equal prompt are reused; all images have the same ids."""
    kept: dict[tuple[int, ...], Tensor] = {}
    right = Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        if features is not None:
            features = kept.setdefault(tuple(inputs.input_ids[0].tolist()), features.clone())
        return right(self, inputs, features, all_logits=all_logits)

    patch.setattr(Pipeline, "prefill_with", prefill_with)


position_captured = mistake("NEW-082", "Position fixed in the captured step", "decode")(standing_still)
