"""Small layers with random weights, and a slot with random keys and values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_dsocr.engine.fast.slots import Slot, Slots
from pytest_dsocr.engine.fast.weights import FeedForward, LayerWeights, Norm


@dataclass(frozen=True)
class Sizes:
    """Sizes of one layer, named as in ``pytest_dsocr.engine.fast.weights``."""

    width: int = 32
    heads: int = 2
    groups: int = 2
    head_dim: int = 8
    experts: int = 8
    per_token: int = 2
    inner: int = 16
    shared: int = 32
    length: int = 70
    ring: int | None = None
    """Length of the ring of positions; the new position is then far beyond ``length``."""
    normalise: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class Made:
    """A layer with its slot and an input."""

    layer: LayerWeights
    slot: Slot
    x: Tensor
    """``[1, C]``."""
    head: Tensor


def make(sizes: Sizes, dtype: torch.dtype, device: str) -> Made:
    """Draw everything from one seed."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int, std: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=draw) * std).to(device, dtype)

    def matrix(*shape: int) -> Tensor:
        return normal(*shape, std=max(shape[-1], 1) ** -0.5)

    def norm() -> Norm:
        return Norm(normal(sizes.width).abs() + 0.5, 1e-6)

    width, inner, shared = sizes.width, sizes.inner, sizes.shared
    feed = FeedForward(
        3 * matrix(sizes.experts, width) if sizes.per_token else None,
        matrix(sizes.experts, 2 * inner, width),
        matrix(sizes.experts, width, inner),
        matrix(2 * shared, width),
        matrix(width, shared),
        sizes.per_token,
        sizes.normalise,
        sizes.scale,
    )
    qkv = matrix((sizes.heads + 2 * sizes.groups) * sizes.head_dim, width)
    output = matrix(width, sizes.heads * sizes.head_dim)
    layer = LayerWeights(norm(), qkv, output, norm(), feed, sizes.head_dim)
    frequencies = 1e4 ** -(torch.arange(0, sizes.head_dim, 2, device=device) / sizes.head_dim)
    slots = Slots(1, normal(1, sizes.groups, 1, sizes.head_dim), frequencies, sizes.ring, 10 * sizes.length)
    slot = slots.take(sizes.length)
    slot.keys.copy_(normal(*slot.keys.shape))
    slot.values.copy_(normal(*slot.values.shape))
    slot.positions.fill_(sizes.length - 1)
    if slot.prompts is not None and sizes.ring:
        slot.prompts.fill_(sizes.length - sizes.ring)
        slot.positions.fill_(5 * sizes.length)
        slot.advance()
    return Made(layer, slot, normal(1, width), matrix(45, width))
