"""The decoder's weights as a fused step reads them; the model's own parameters become views of these tensors.

Shapes: C hidden channels, N query heads, G key-value heads, D channels of a head. E experts, K experts of a token, I
channels inside an expert. J channels inside the shared experts, or inside a layer's only perceptron.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.layers.decoder import DecoderAttention, DecoderLayer
from pytest_dsocr.layers.experts import GatedMlp, MixtureOfExperts
from pytest_dsocr.layers.norms import RmsNorm


class Norm(NamedTuple):
    """An RMS norm: its weight ``[C]``, and what is added to the mean square."""

    weight: Tensor
    eps: float


@dataclass(frozen=True)
class FeedForward:
    """A mixture of experts, or a single perceptron, which is one without routed experts (K and E are 0)."""

    router: Tensor | None
    """``[E, C]``."""
    gate_up: Tensor
    """``[E, 2I, C]``, the gate's rows before the up projection's."""
    down: Tensor
    """``[E, C, I]``."""
    shared_gate_up: Tensor
    """``[2J, C]``."""
    shared_down: Tensor
    """``[C, J]``."""
    per_token: int
    """K."""
    normalise: bool = False
    """Whether the chosen experts' weights are made to sum to one."""
    scale: float = 1.0

    @property
    def inner(self) -> int:
        """I."""
        return self.down.shape[2]

    @property
    def shared_inner(self) -> int:
        """J."""
        return self.shared_down.shape[1]


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer."""

    before_attention: Norm
    qkv: Tensor
    """``[(N + 2G) * D, C]``: the queries' rows, then the keys', then the values'."""
    output: Tensor
    """``[C, N * D]``."""
    before_feed: Norm
    feed: FeedForward
    head_dim: int
    """D."""


@dataclass(frozen=True)
class DecoderWeights:
    """All of a decode step's weights but the embeddings."""

    layers: tuple[LayerWeights, ...]
    norm: Norm
    head: Tensor
    """``[V, C]``."""
    round_scores: bool
    """Whether attention rounds its scores to the weights' dtype, as it does where every step of it is written out."""

    @classmethod
    def of(cls, model: EngineModel) -> DecoderWeights:
        """Lay the weights of ``model`` out, which computes with the same memory from then on."""
        layers = model.model.decoder_layers()
        attends = {layer.self_attn.attend for layer in layers}
        return cls(
            tuple(map(layer_of, layers)), _norm(model.model.norm), model.lm_head.weight.detach(), attends == {eager}
        )


def layer_of(layer: DecoderLayer) -> LayerWeights:
    """Lay a layer's weights out, which computes with the same memory from then on."""
    attention = layer.self_attn
    assert isinstance(attention, DecoderAttention)
    return LayerWeights(
        _norm(layer.input_layernorm),
        _joined(attention.q_proj, attention.k_proj, attention.v_proj),
        attention.o_proj.weight.detach(),
        _norm(layer.post_attention_layernorm),
        experts_of(layer.mlp) if isinstance(layer.mlp, MixtureOfExperts) else _single(layer.mlp),
        attention.head_dim,
    )


def experts_of(mixture: MixtureOfExperts) -> FeedForward:
    """Lay a mixture's weights out, which computes with the same memory from then on."""
    gate_up, down = mixture.stack()
    shared, router = mixture.shared_experts, mixture.gate
    return FeedForward(
        router.weight.detach(),
        gate_up,
        down,
        _joined(shared.gate_proj, shared.up_proj),
        shared.down_proj.weight.detach(),
        router.experts_per_token,
        router.normalise,
        router.scale,
    )


def _single(mlp: GatedMlp) -> FeedForward:
    down = mlp.down_proj.weight.detach()
    none = down.new_empty(0, 0, 0)
    return FeedForward(None, none, none, _joined(mlp.gate_proj, mlp.up_proj), down, per_token=0)


def _joined(*layers: nn.Linear) -> Tensor:
    """Move several layers' weights into one tensor, one below the other, that they stay views of."""
    joined = torch.cat([layer.weight.detach() for layer in layers])
    for layer, part in zip(layers, joined.split([len(layer.weight) for layer in layers]), strict=True):
        layer.weight.data = part
    return joined


def _norm(norm: RmsNorm) -> Norm:
    return Norm(norm.weight.detach(), norm.eps)
