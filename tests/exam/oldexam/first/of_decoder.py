"""Mistakes in the decoder, listed before the checks were read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.layers import attention
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.engine.model import Core
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import LONG, change_rope, change_scores, core_of, mistake, mixtures, quantise_experts, unstack

HALF = "a run in bfloat16"
CHUNK = 512


@mistake("HLD-55", "Positions in the weights' dtype", "prefill", HALF)
def rounded_positions(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The angles are computed of positions in the weights' dtype: in bfloat16 those above 256 are rounded."""
    change_rope(patch, lambda inverse, positions, dtype: (inverse, positions.to(dtype).float()))


@mistake("HLD-56", "Frequencies scaled beyond 1,024 positions", "prefill", LONG)
def dynamic_scaling(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The dynamic scaling of a longer model was left on: theta grows with the length."""

    def scaled(inverse: Tensor, positions: Tensor, _: torch.dtype) -> tuple[Tensor, Tensor]:
        length = int(positions.max()) + 1
        exponents = torch.arange(len(inverse), device=inverse.device) / max(len(inverse) - 1, 1)
        return inverse * (max(length, 1024) / 1024) ** -exponents, positions

    change_rope(patch, scaled)


@mistake("HLD-59", "Chunks of a prompt with a mask from the top left", "prefill", LONG)
def top_left(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A prompt goes in 512 tokens at a time, and is_causal puts the triangle at the first key, not at the last."""
    right = Core.decode

    def decode(self: Core, x: Tensor, cache: KVCache) -> Tensor:
        return torch.cat([right(self, part, cache) for part in x.split(CHUNK, dim=1)], dim=1)

    def visible(q: Tensor, k: Tensor, lengths: Any) -> Tensor | None:
        if q.shape[2] == 1:
            return None
        at = torch.arange(k.shape[2], device=q.device)
        return (at <= at[: q.shape[2], None])[None, None]

    patch.setattr(Core, "decode", decode)
    patch.setattr(attention, "_visible", visible)


@mistake("HLD-61", "The router in the weights' dtype", "prefill", HALF)
def narrow_router(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Neither the tokens nor the router's weights are widened."""
    change_scores(patch, lambda router, x: F.linear(x, router.weight).softmax(dim=-1))


@mistake("HLD-62", "Gate and up exchanged in steps", "decode")
def exchanged_in_steps(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The kernel for one token takes the fused weights in the other order."""
    right = MixtureOfExperts.run_looped

    def looped(self: MixtureOfExperts, tokens: Tensor, chosen: Tensor) -> Tensor:
        if len(tokens) > 1:
            return right(self, tokens, chosen)
        experts = [self._mlps()[k] for k in chosen.flatten().tolist()]
        return torch.cat([one.down_proj(F.silu(one.up_proj(tokens)) * one.gate_proj(tokens)) for one in experts])

    unstack(patch, subject)
    patch.setattr(MixtureOfExperts, "run_looped", looped)


@mistake("HLD-63", "Shared experts averaged", "prefill")
def averaged(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The two are run apart, and their mean is taken in place of their sum."""
    right = MixtureOfExperts.forward
    patch.setattr(MixtureOfExperts, "forward", lambda self, x: right(self, x) - self.shared_experts(x) / 2)


@mistake("HLD-64", "Epsilon outside of the root", "prefill")
def outside_the_root(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """x / (rms + eps) in place of x / sqrt(ms + eps)."""

    def forward(self: RmsNorm, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide / (wide.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)).to(x.dtype)

    patch.setattr(RmsNorm, "forward", forward)


@mistake("HLD-65", "A norm's weight applied before the cast", "prefill", HALF)
def weighted_wide(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """It is multiplied in float32, and the product is rounded; the vendor rounds first."""

    def forward(self: RmsNorm, x: Tensor) -> Tensor:
        wide = x.float()
        return (self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps))).to(x.dtype)

    patch.setattr(RmsNorm, "forward", forward)


@mistake("HLD-67", "Queries permuted for interleaved pairs, keys not", "prefill")
def half_permuted(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A converter permutes both for its own rotation; here one of the two."""
    for layer in core_of(subject).decoder_layers():
        weight, width = layer.self_attn.q_proj.weight, layer.self_attn.head_dim
        pairs = weight.data.unflatten(0, (-1, 2, width // 2)).transpose(1, 2)
        patch.setattr(weight, "data", pairs.flatten(0, 2).contiguous())


@mistake("HLD-68", "Experts in 8 bits", "prefill")
def quantised_experts(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Their weights are stored with one scale for each row."""
    quantise_experts(patch, subject, lambda weight: weight.amax(1, keepdim=True))


@mistake("HLD-69", "Experts in the order of their names", "prefill", "a checkpoint of more than ten experts")
def sorted_as_text(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Tensors are stacked in the order of the file, where experts.10 stands in front of experts.2."""
    unstack(patch, subject)
    for mixture in mixtures(subject):
        experts = mixture._mlps()
        stored = [[one.data for one in experts[k].parameters()] for k in sorted(range(len(experts)), key=str)]
        for expert, weights in zip(experts, stored, strict=True):
            for parameter, data in zip(expert.parameters(), weights, strict=True):
                patch.setattr(parameter, "data", data)
