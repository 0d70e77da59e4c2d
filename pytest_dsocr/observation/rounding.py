"""How a stage rounds: its error against float32 on its own input, beside that of the vendor's kernels on that input.

Two implementations that compute in bfloat16 both round, so how far they lie apart says little. Here every part is
computed again from what the subject itself put into it: once in float32, which is the truth, and once by the vendor's
kernels in the subject's dtype. Errors do not pile up then, and none depends on the GPU that a recording was made on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ROUNDED_DTYPES = ("bfloat16", "float16")
"""What a subject computes in where its rounding is looked at; float32 is held to narrow limits as it is."""


class Effect(NamedTuple):
    """How much of a known mistake's effect is in the difference from the vendor's kernels."""

    id: str
    words: str
    share: float
    """1 where the difference is the mistake's effect and rounding, 0 where it has nothing to do with it."""
    error: float
    """The standard error of ``share``, over tokens."""
    likelihood: float = 0.0
    """How much likelier the whole of its effect makes the difference than none of it does; a logarithm."""

    is_whole: bool = False
    """Whether it was looked for in the whole stage, and not in blocks."""

    @property
    def z(self) -> float:
        """How many standard errors the share is above 0."""
        return self.share / self.error if self.error else 0.0


@dataclass(frozen=True)
class Rounding:
    """A stage's rounding on one page."""

    parts: int
    """The parts that were computed again: the stage for each view, and each block of a subject with named modules."""
    differing: float = 0.0
    """The share of its values that the vendor's kernels give otherwise; with 0 all else is as it is here."""
    is_whole: bool = False
    """Whether the rest is of the whole stage, in which errors add up; else it is of the blocks that differ."""
    part: str = ""
    """The part with the largest error."""
    ratio: float = 1.0
    """Its error against float32 over the vendor's: the median over tokens."""
    bias: float = 0.0
    """The mean square of the channels' mean differences over what independent rounding leaves of it, at most."""
    effects: tuple[Effect, ...] = ()
    """Of the known mistakes that were tried, those that may be in it."""
    tried: int = 0
    """How many known mistakes were tried."""
    fewer_bits: bool = False
    """Whether the subject may compute in fewer bits than its dtype has. Rounded weights err alike for all tokens."""
