"""A decode step of all layers, from plain torch or fused kernels.

Shapes: B rows (one in a page's step), C hidden channels, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.fast import plain
from pytest_dsocr.engine.fast.slots import Slot
from pytest_dsocr.engine.fast.weights import DecoderWeights, LayerWeights


@dataclass(frozen=True)
class Operations:
    """Operations of a decode step; ``fast.plain`` documents each in its slowest and clearest form."""

    qkv: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    project: Callable[..., Tensor]
    score: Callable[..., Tensor]
    gate_up: Callable[..., tuple[Tensor, Tensor, Tensor]]
    down: Callable[..., Tensor]

    @classmethod
    def of(cls, module: Any) -> Operations:
        """Take the functions of these names from a module."""
        return cls(module.qkv, module.attend, module.project, module.score, module.gate_up, module.down)


PLAIN = Operations.of(plain)


@cache
def operations_for(device: torch.device) -> Operations:
    """Return Triton's kernels on a GPU if the package is installed, otherwise plain torch."""
    if device.type != "cuda" or not find_spec("triton"):
        return PLAIN
    from pytest_dsocr.engine.fast import fused

    return Operations.of(fused)


def step(x_BC: Tensor, weights: DecoderWeights, slot: Slot, operations: Operations, *, round_router: bool) -> Tensor:
    """Feed one token a row at the slot's positions: float32 logits ``[B, V]``.

    Args:
        x_BC: the tokens' embeddings.
        weights: the model's.
        slot: keys and values, which the step writes to; its positions stay.
        operations: what to compute with.
        round_router: compute the router's scores in the weights' dtype, as autocast does, and not in float32.
    """
    for index, layer in enumerate(weights.layers):
        place = slot.at(index)
        q = operations.qkv(x_BC, layer, place)
        mixed = operations.attend(q, place, round_scores=weights.round_scores)
        x_BC = through_feed(operations.project(mixed, layer.output, x_BC), layer, operations, round_router=round_router)
    return operations.score(x_BC, weights.norm, weights.head, rounded=True)


def through_feed(x_BC: Tensor, layer: LayerWeights, operations: Operations, *, round_router: bool) -> Tensor:
    """Run the second half of a layer: experts, or the only perceptron, with the residual connection."""
    feed, norm, scores = layer.feed, layer.before_feed, None
    if feed.router is not None:
        scores = operations.score(x_BC, norm, feed.router, rounded=round_router)
    inner, chosen, shares = operations.gate_up(x_BC, norm, scores, feed)
    return operations.down(inner, chosen, shares, feed, x_BC)
