"""Rotary positions in the half-rotation form.

Shapes: B rows, T tokens of a call, N heads, D channels of a head.
"""

from typing import Protocol

import torch
from torch import Tensor, nn


class Rope:
    """The rotation of one call's positions, computed in float32 and shared by all layers."""

    def __init__(self, inverse_frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        self.positions, self.inverse_frequencies = positions, inverse_frequencies  # [B, T], [D / 2]
        angles = positions[:, None, :, None].float() * inverse_frequencies.float()
        angles = torch.cat([angles, angles], dim=-1)  # [B, 1, T, D]
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate ``[B, N, T, D]``, the second half of the channels paired with the first."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-second, first], dim=-1) * self.sin


class RotaryConfig(Protocol):
    """Sizes that determine the frequencies."""

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""

    @property
    def rope_theta(self) -> float:
        """Base of the frequencies."""


class Rotary(nn.Module):
    """Base of a module that rotates by ``inv_freq``, ``[D / 2]``, which no checkpoint has."""

    inv_freq: Tensor

    def __init__(self, config: RotaryConfig) -> None:
        super().__init__()
        self.rotary = config
        self.register_buffer("inv_freq", inverse_frequencies(config).to(torch.get_default_device()), persistent=False)


def inverse_frequencies(config: RotaryConfig) -> Tensor:
    """Return ``theta ** (-2i / D)`` for the D/2 pairs of channels, float32, on the CPU."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64, device="cpu").float() / config.head_dim
    return 1.0 / (config.rope_theta**exponents)
