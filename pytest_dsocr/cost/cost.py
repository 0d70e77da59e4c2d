"""What a piece of the model costs: operations, and bytes moved at least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cost:
    """Operations and bytes; costs add up."""

    matrix_flops: int = 0
    """Of matrix products, convolutions and attention; two for a multiplication with its addition."""
    other_flops: int = 0
    """Of all else: norms, activations, softmax, rotary positions; one for each operation on a number."""
    weight_bytes: int = 0
    """Weights that are read, each once."""
    read_bytes: int = 0
    """Activations and cache that are read."""
    written_bytes: int = 0
    """Activations and cache that are written."""
    attention_flops: int = 0
    """Of ``matrix_flops``, those of queries with keys and of weights with values, which a kernel may hide."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.matrix_flops + other.matrix_flops,
            self.other_flops + other.other_flops,
            self.weight_bytes + other.weight_bytes,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.attention_flops + other.attention_flops,
        )

    @property
    def flops(self) -> int:
        """All operations."""
        return self.matrix_flops + self.other_flops

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Operations a byte; 0 where nothing is moved."""
        return self.flops / self.bytes if self.bytes else 0.0


def total(costs: Iterable[Cost]) -> Cost:
    """Add costs up."""
    return sum(costs, Cost())


@dataclass(frozen=True)
class StageCost:
    """One stage of a page."""

    stage: str
    """``sam``, ``clip``, ``projector``, ``vision_fusion``, ``prefill`` or ``decode``."""
    layers: Mapping[str, Cost] = field(default_factory=dict)
    """By the module's name in the vendor's state dict, such as ``model.layers.3.mlp``."""

    @property
    def cost(self) -> Cost:
        """The whole stage."""
        return total(self.layers.values())


def by_module(stages: Iterable[StageCost]) -> dict[str, Cost]:
    """Add several stages up, module by module: prefill and decode run the same."""
    found: dict[str, Cost] = {}
    for stage in stages:
        for name, cost in stage.layers.items():
            found[name] = found.get(name, Cost()) + cost
    return found
