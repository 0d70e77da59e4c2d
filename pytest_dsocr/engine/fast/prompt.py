"""A prompt through all layers: joined products, experts sorted, attention that writes no scores to memory.

Shapes as in :mod:`~pytest_dsocr.engine.fast.weights`; T tokens.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.attention import sdpa
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.engine.fast.grouped import GROUPED
from pytest_dsocr.engine.fast.plain import normalise
from pytest_dsocr.engine.fast.weights import DecoderWeights, LayerWeights


def prefill(x_TC: Tensor, weights: DecoderWeights, cache: KVCache, rope: Rope, *, round_router: bool) -> Tensor:
    """Run the layers on one prompt's embeddings, filling ``cache``, which is empty: hidden states ``[T, C]``.

    Args:
        x_TC: the prompt's embeddings.
        weights: the model's.
        cache: of one row; it grows by T.
        rope: of positions 0 to T.
        round_router: compute the router's scores in the weights' dtype, as autocast does, and not in float32.
    """
    for index, layer in enumerate(weights.layers):
        x_TC = GROUPED.project(_attend(x_TC, index, layer, cache, rope), layer.output, x_TC)
        feed, scores = layer.feed, None
        if feed.router is not None:
            scores = GROUPED.score(x_TC, layer.before_feed, feed.router, rounded=round_router)
        inner, chosen, shares = GROUPED.gate_up(x_TC, layer.before_feed, scores, feed)
        x_TC = GROUPED.down(inner, chosen, shares, feed, x_TC)
    cache.advance(len(x_TC))
    return x_TC


def _attend(x_TC: Tensor, index: int, layer: LayerWeights, cache: KVCache, rope: Rope) -> Tensor:
    joined = F.linear(normalise(x_TC, layer.before_attention), layer.qkv)
    heads = joined.unflatten(1, (-1, layer.head_dim)).transpose(0, 1)[None]  # [1, N + 2G, T, D]
    queries = layer.output.shape[1] // layer.head_dim
    groups = (heads.shape[1] - queries) // 2
    turned, v = rope.rotate(heads[:, :-groups]), heads[:, -groups:]
    cache.append(index, turned[:, queries:], v, rope.positions)
    mixed = sdpa(turned[:, :queries], turned[:, queries:], v, None)
    return mixed[0].transpose(0, 1).flatten(1)


def last_or_all(hidden_TC: Tensor, weights: DecoderWeights, *, every: bool) -> Tensor:
    """Give float32 logits of the last token ``[1, V]``, or of all ``[T, V]``."""
    return GROUPED.score(hidden_TC if every else hidden_TC[-1:], weights.norm, weights.head, rounded=True)
