"""Rotary positions on some channels of a head, with other frequencies than their own, or with other pairs.

Shapes: P positions, D channels of a head, F pairs of channels that are rotated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

QUARTERS = (2, 1, 3)
"""Quarters of a head's channels that may be rotated alone."""
KINDS = ("own", "first", "last")
"""Kinds of frequencies."""


@dataclass(frozen=True)
class PartlyTurned:
    """A rotation of the channels ``first`` to ``end`` of a head."""

    first: int
    end: int
    size: int
    """Number of a head's channels."""
    frequencies: str = "own"
    """``own``: those of a head with as many channels; ``first`` or ``last``: these of the whole head."""
    has_neighbours: bool = False
    """Whether neighbouring channels are a pair, not those of the first and of the second half."""

    @property
    def words(self) -> str:
        """The rotation in words."""
        pairs = ", neighbouring ones as a pair" if self.has_neighbours else ""
        which = f"only channels {self.first} to {self.end - 1} of a head's {self.size}"
        return f"{which} are rotated by their position, with {self.of_frequencies}{pairs}"

    @property
    def of_frequencies(self) -> str:
        """The frequencies in words."""
        width, every = self.end - self.first, self.size // 2
        return {
            "own": f"the frequencies of a head of {width} channels",
            "first": f"the first {width // 2} of {every} frequencies",
            "last": f"the last {width // 2} of {every} frequencies",
        }[self.frequencies]

    def rotate(self, x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
        """Rotate ``[..., P, D]`` by positions ``[P]``; ``frequencies`` are those of the whole head, ``[D / 2]``."""
        return self.rotate_by(x, positions.to(frequencies)[:, None] * self.chosen(frequencies))

    def rotate_by(self, x: Tensor, angles: Tensor) -> Tensor:
        """Rotate ``[..., P, D]`` by angles ``[P, F]``."""
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, other = self._pairs(x)
        parts = one * cos - other * sin, other * cos + one * sin
        turned = torch.stack(parts, -1).flatten(-2) if self.has_neighbours else torch.cat(parts, -1)
        return torch.cat([x[..., : self.first], turned, x[..., self.end :]], -1)

    def pairs(self, x: Tensor) -> Tensor:
        """Return the channels of ``[..., P, D]`` as numbers that a rotation multiplies, ``[..., P, F]`` complex."""
        return torch.complex(*self._pairs(x))

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        part = x[..., self.first : self.end]
        one, other = (part[..., ::2], part[..., 1::2]) if self.has_neighbours else part.chunk(2, -1)
        return one, other

    def chosen(self, frequencies: Tensor) -> Tensor:
        """Return the frequencies of the channels, ``[F]``; between two of the head's, they are a power between them."""
        count, every = (self.end - self.first) // 2, len(frequencies)
        if self.frequencies != "own":
            return frequencies[:count] if self.frequencies == "first" else frequencies[every - count :]
        places = torch.arange(count, device=frequencies.device) * (every / count)
        low = places.long()
        logs = frequencies.log()
        high = (low + 1).clamp_max(every - 1)
        return (logs[low] + (places - low) * (logs[high] - logs[low])).exp().to(frequencies.dtype)


def partly_turned(size: int) -> Iterator[PartlyTurned]:
    """Yield rotations of the first or the last channels of a head."""
    for quarters, has_neighbours in product(QUARTERS, (False, True)):
        width = size * quarters // 4 // 2 * 2
        for first, frequencies in product((0, size - width), KINDS):
            if 0 < width < size:
                yield PartlyTurned(first, first + width, size, frequencies, has_neighbours)
