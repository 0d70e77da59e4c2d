"""Mistakes in the decoder, its experts and its cache: the half whose outcome may be seen by all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import attention
from pytest_dsocr.engine.attention import _repeat_heads
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import RmsNorm
from pytest_dsocr.engine.experts import MixtureOfExperts, Router
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.held_out.of_cache import BATCH, padding_seen
from tests.faults.held_out.of_decoder import top_left
from tests.faults.of_cache import _appended, _decoded_positions
from tests.faults.open_half import mistake
from tests.faults.registry import LONG, core_of, run_instead

FACTOR = 1.25
BLOCK = 64


@mistake("NEW-061", "RMSNorm's epsilon of Llama", "prefill")
def rms_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """1e-5 in place of 1e-6."""
    for module in core_of(subject).modules():
        if isinstance(module, RmsNorm):
            patch.setattr(module, "eps", 1e-5)


@mistake("NEW-062", "Norm weights with one added", "prefill")
def norm_plus_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The converter's convention stores w - 1, and the norms compute with 1 + w."""

    def forward(self: RmsNorm, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return (1 + self.weight) * scaled.to(x.dtype)

    patch.setattr(RmsNorm, "forward", forward)


@mistake("NEW-063", "Image tokens see one another", "prefill")
def image_bidirectional(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The mask lets tokens of the image see later ones, as PaliGemma's does."""
    of_image: dict[str, Tensor] = {}
    right, visible = Pipeline.prefill_with, attention._visible

    def prefill_with(self: Any, inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        of_image["mask"] = inputs.images_seq_mask[0]
        return right(self, inputs, features, all_logits=all_logits)

    def seen(q: Tensor, k: Tensor, lengths: Any) -> Tensor | None:
        causal = visible(q, k, lengths)
        mask = of_image.get("mask", torch.empty(0))
        if causal is None or len(mask) != q.shape[2] or q.shape[2] != k.shape[2]:
            return causal
        return causal | (mask[:, None] & mask)

    patch.setattr(Pipeline, "prefill_with", prefill_with)
    patch.setattr(attention, "_visible", seen)


mistake("NEW-066", "Second chunk's mask in the wrong corner", "prefill", LONG)(top_left)


@mistake("NEW-068", "Attention's probabilities in eight bits", "prefill")
def probabilities_fp8(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Probabilities are quantised to e4m3 before they meet the values."""

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        k, v = _repeat_heads(k, q), _repeat_heads(v, q)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        visible = attention._visible(q, k, lengths)
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).to(torch.float8_e4m3fn).to(q.dtype) @ v

    for layer in core_of(subject).decoder_layers():
        patch.setattr(layer.self_attn, "attend", attend)


@mistake("NEW-069", "Shared experts left out of the fused step", "decode")
def shared_lost_in_steps(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The fused kernel for one token computes the routed experts only."""
    for layer in core_of(subject).decoder_layers():
        if isinstance(layer.mlp, MixtureOfExperts):
            shared = layer.mlp.shared_experts
            right = shared.forward
            one: Any = lambda x, right=right: right(x) if x.shape[:-1].numel() > 1 else torch.zeros_like(x)  # noqa: E731
            run_instead(patch, shared, one)


@mistake("NEW-070", "Experts of limited capacity", "prefill", "a prompt whose tokens are routed unevenly")
def capacity(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """An expert takes at most 1.25 times its even share of a prompt; later tokens are dropped."""
    right = Router.forward

    def forward(self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen, weights = right(self, x)
        experts = len(self.weight)
        room = math.ceil(FACTOR * chosen.numel() / experts)
        flat = F.one_hot(chosen.flatten(), experts)
        place = (flat.cumsum(0) * flat).sum(-1).view_as(chosen)
        return chosen, weights.masked_fill(place > room, 0.0) if len(x) > 1 else weights

    patch.setattr(Router, "forward", forward)


@mistake("NEW-071", "Scores by sigmoid", "prefill")
def sigmoid_scores(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The router of DeepSeek-V3 is reused."""

    def forward(self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = F.linear(x.float(), self.weight.float()).sigmoid()
        weights, chosen = torch.topk(scores, self.experts_per_token, dim=-1, sorted=False)
        return chosen, weights / weights.sum(dim=-1, keepdim=True)

    patch.setattr(Router, "forward", forward)


@mistake("NEW-075", "Experts without tokens not counted", "decode", "steps, and short prompts")
def empty_experts(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Tokens of an expert are counted by unique, which leaves out empty experts: the next ones get their tokens."""

    def looped(self: MixtureOfExperts, tokens: Tensor, chosen: Tensor) -> Tensor:
        order = chosen.flatten().argsort()
        counts = chosen.flatten().unique(return_counts=True)[1].tolist()
        parts = tokens[order // chosen.shape[1]].split(counts)
        made = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=False)])
        out = torch.empty_like(made)
        out[order] = made
        return out

    patch.setattr(MixtureOfExperts, "looped", looped)


@mistake("NEW-076", "Steps one position too far", "decode")
def step_one_late(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A step's position is the length after the token, so that a gap is left behind the prompt."""
    _decoded_positions(patch, lambda cache, found: found + 1)


@mistake("NEW-077", "Cache in eight bits", "decode")
def cache_fp8(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Keys and values are read from a store of e4m3 in steps; a prompt attends to its own as they are."""

    def stored(both: tuple[Tensor, Tensor], new: int) -> Any:
        return tuple(one.to(torch.float8_e4m3fn).to(one.dtype) for one in both) if new == 1 else both

    _appended(patch, stored)


@mistake("NEW-081", "Token at a block's end lost", "decode", "an output that crosses a block")
def block_boundary(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """In a paged cache of 64 positions a block, the last slot of each is left empty after prefill."""
    right = KVCache.append

    def append(self: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> Any:
        if keys.shape[2] == 1 and (self.length + 1) % BLOCK == 0:
            keys, values = torch.zeros_like(keys), torch.zeros_like(values)
        return right(self, layer, keys, values, positions)

    patch.setattr(KVCache, "append", append)


mistake("NEW-083", "Padding of shorter rows seen", "decode", BATCH)(padding_seen)
