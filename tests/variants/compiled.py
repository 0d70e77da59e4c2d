"""A decoder compiled by torch, and decode steps captured as one CUDA graph.

Functions of tensors are compiled, not modules with their cache: every layer then shares one compiled function, and
nothing depends on the length of the cache.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fast.model import FastModel
from pytest_dsocr.engine.fast.step import PLAIN
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.decoder import DecoderLayer
from pytest_dsocr.layers.experts import GatedMlp
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Forward, Variant, copied, with_forward

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


def compiled(setup: Setup) -> Variant:
    """Compile the decoder's layers."""
    return compiled_by(setup, lambda function: torch.compile(function, dynamic=True))


def autotuned(setup: Setup) -> Variant:
    """Compile the decoder's layers, and choose each product's kernel by its time; graphs are left to ``captured``."""
    mode = "max-autotune-no-cudagraphs"
    return compiled_by(setup, lambda function: torch.compile(function, dynamic=True, mode=mode))


def captured(setup: Setup) -> Variant:
    """Replay decode steps as one CUDA graph of torch's own kernels, where ``engine:fast`` has Triton's."""
    subject = copied(setup, engine="fast")
    assert isinstance(subject.engine.model, FastModel)
    subject.engine.model.operations = PLAIN
    return subject


def compiled_by(setup: Setup, compiler: Compiler) -> Variant:
    """Load the engine with the functions of its decoder's layers as ``compiler`` returns them."""
    before, attend, after, feed = (compiler(one) for one in (_before, eager, _after, _feed))

    def layer(own: DecoderLayer) -> Forward:
        attention, first, second = own.self_attn, own.input_layernorm, own.post_attention_layernorm
        projections = attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight

        def forward(x_BTC: Tensor, rope: Rope, cache: KVCache) -> Tensor:
            given = first.weight, first.eps, projections, attention.head_dim
            q, k, v = before(x_BTC, rope.cos, rope.sin, *given)
            keys, values = cache.append(attention.layer, k, v, rope.positions)
            mixed = eager(q, keys, values, cache.lengths_after(1)) if cache.is_ragged else attend(q, keys, values, None)
            x_BTC, normal = after(x_BTC, mixed, attention.o_proj.weight, second.weight, second.eps)
            return x_BTC + own.mlp(normal)

        return forward

    def mlp(own: GatedMlp) -> Forward:
        weights = own.gate_proj.weight, own.up_proj.weight, own.down_proj.weight
        return lambda x: feed(x.flatten(0, -2), *weights).view_as(x)

    return with_forward(with_forward(copied(setup), DecoderLayer, layer), GatedMlp, mlp)


def _before(
    x_BTC: Tensor, cos: Tensor, sin: Tensor, norm: Tensor, eps: float, projections: tuple[Tensor, ...], head_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values ``[B, N, T, D]``, the first two rotated."""
    normal = _normalise(x_BTC, norm, eps)
    q, k, v = (F.linear(normal, weight).unflatten(2, (-1, head_dim)).transpose(1, 2) for weight in projections)
    return _rotate(q, cos, sin), _rotate(k, cos, sin), v


def _after(x_BTC: Tensor, mixed: Tensor, output: Tensor, norm: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the residual stream after attention, and the input of the second half of the layer."""
    x_BTC = x_BTC + F.linear(mixed.transpose(1, 2).flatten(2), output)
    return x_BTC, _normalise(x_BTC, norm, eps)


def _feed(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def _normalise(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
