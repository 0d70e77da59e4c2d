"""A prompt through all layers: experts sorted, and all else as the readable layers compute it.

Shapes as in :mod:`~pytest_dsocr.engine.fast.weights`; L layers, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fast.grouped import GROUPED
from pytest_dsocr.engine.fast.plain import normalise
from pytest_dsocr.engine.fast.step import through_feed
from pytest_dsocr.engine.fast.weights import DecoderWeights, LayerWeights
from pytest_dsocr.layers.attention import AttentionFunction
from pytest_dsocr.layers.decoder import DecoderLayer
from pytest_dsocr.layers.fast.hooks import called
from pytest_dsocr.layers.rotary import Rope


class Prefilled(NamedTuple):
    """Logits, keys and values of a prompt."""

    logits: Tensor
    """Float32, of the last token ``[1, V]`` or of all ``[T, V]``."""
    keys: Tensor
    """``[L, G, T, D]``."""
    values: Tensor
    """``[L, G, T, D]``."""


def prefill(
    x_TC: Tensor,
    weights: DecoderWeights,
    rope: Rope,
    modules: Sequence[DecoderLayer],
    *,
    round_router: bool,
    every: bool,
) -> Prefilled:
    """Run the layers on one prompt's embeddings.

    Args:
        x_TC: the prompt's embeddings.
        weights: the model's.
        rope: of positions 0 to T.
        modules: the layers, which define the attention, and whose hooks are called.
        round_router: compute the router's scores in the weights' dtype, as autocast does, instead of in float32.
        every: return the logits of every token.
    """
    cached: list[tuple[Tensor, Tensor]] = []
    attend = modules[0].self_attn.attend

    def through(layer: LayerWeights, x_1TC: Tensor) -> Tensor:
        mixed, k, v = _attend(x_1TC[0], layer, rope, attend)
        cached.append((k, v))
        x_TC = GROUPED.project(mixed, layer.output, x_1TC[0])
        return through_feed(x_TC, layer, GROUPED, round_router=round_router)[None]

    x_1TC = x_TC[None]
    for module, layer in zip(modules, weights.layers, strict=True):
        x_1TC = called(module, partial(through, layer), x_1TC)
    x_TC = x_1TC[0]
    logits = GROUPED.score(x_TC if every else x_TC[-1:], weights.norm, weights.head, rounded=True)
    keys, values = (torch.cat(of_layers) for of_layers in zip(*cached, strict=True))
    return Prefilled(logits, keys, values)


def _attend(x_TC: Tensor, layer: LayerWeights, rope: Rope, attend: AttentionFunction) -> tuple[Tensor, Tensor, Tensor]:
    """Return what is mixed ``[T, N * D]``, and keys and values ``[1, G, T, D]``."""
    x_TC, of_queries = normalise(x_TC, layer.before_attention), layer.output.shape[1]
    rest = len(layer.qkv) - of_queries
    products = (F.linear(x_TC, weight) for weight in layer.qkv.split([of_queries, rest // 2, rest // 2]))
    q, k, v = (made.unflatten(1, (-1, layer.head_dim)).transpose(0, 1)[None] for made in products)
    q, k = rope.rotate(q), rope.rotate(k)
    return attend(q, k, v, None)[0].transpose(0, 1).flatten(1), k, v
