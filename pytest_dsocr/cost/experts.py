"""How many experts' weights a call reads: exactly where the routing is known, else expected, at least and at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pytest_dsocr.engine.architecture import DecoderConfig


class Reached(Protocol):
    """Distinct experts of layer ``layer`` that ``rows`` rows of tokens at ``positions`` go to in one call."""

    def __call__(self, config: DecoderConfig, layer: int, positions: range, rows: int) -> float:
        """Count."""


def expected(config: DecoderConfig, layer: int, positions: range, rows: int) -> float:
    """Count as many as are expected where every expert is as likely as any other."""
    tokens = len(positions) * rows
    missed = (1 - config.num_experts_per_tok / config.n_routed_experts) ** tokens
    return config.n_routed_experts * (1 - missed)


def least(config: DecoderConfig, layer: int, positions: range, rows: int) -> float:
    """Count as few as can be: all tokens go to the same."""
    return config.num_experts_per_tok if len(positions) * rows else 0


def most(config: DecoderConfig, layer: int, positions: range, rows: int) -> float:
    """Count as many as can be: no two tokens share one, as long as there are others."""
    return min(config.n_routed_experts, config.num_experts_per_tok * len(positions) * rows)


ALIKE: tuple[Reached, ...] = (expected, least, most)
"""Those that depend on the number of tokens alone."""


def routed(chosen: Mapping[int, Sequence[Sequence[int]]]) -> Reached:
    """Count exactly: ``chosen`` holds, by layer, the experts of each position (of all rows there)."""

    def exact(config: DecoderConfig, layer: int, positions: range, rows: int) -> float:
        return len({expert for position in positions for expert in chosen[layer][position]})

    return exact
