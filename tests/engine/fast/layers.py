"""A small layer with synthetic weights, and a slot with random keys and values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_dsocr.engine.fast.slots import Slot, Slots
from pytest_dsocr.engine.fast.weights import LayerWeights, layer_of
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.layers.decoder import DecoderLayer
from pytest_dsocr.layers.rotary import inverse_frequencies
from pytest_dsocr.layers.sizes import DecoderConfig

SMALL = DecoderConfig(
    hidden_size=32,
    intermediate_size=52,
    num_attention_heads=4,
    num_key_value_heads=4,
    n_routed_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
)
DENSE, MIXTURE = 0, 1
"""Index of a layer with a single perceptron, and of one with experts."""


@dataclass(frozen=True)
class Made:
    """A layer with its slot and an input."""

    layer: LayerWeights
    slot: Slot
    x: Tensor
    """``[1, C]``."""
    head: Tensor


def make(
    config: DecoderConfig = SMALL,
    index: int = MIXTURE,
    length: int = 70,
    ring: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Made:
    """Make a layer with ``length`` positions in its slot; with a ring, the new position is far beyond these."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(device, dtype)

    module, width = DecoderLayer(config, index).requires_grad_(False), config.hidden_size
    fill(module)
    x, head = normal(1, width), normal(45, width) * width**-0.5
    like = x.new_empty(1, config.num_key_value_heads, 0, config.head_dim)
    slot = Slots(1, like, inverse_frequencies(config).to(device), ring, 10 * length).take(length)
    slot.keys.copy_(normal(*slot.keys.shape))
    slot.values.copy_(normal(*slot.values.shape))
    slot.positions.fill_(length - 1)
    if slot.prompts is not None and ring:
        slot.prompts.fill_(length - ring)
        slot.positions.fill_(5 * length)
        slot.advance()
    return Made(layer_of(module.to(device, dtype)), slot, x, head)
