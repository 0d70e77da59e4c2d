"""Search for a factor, as a power of two: the best of some, and then the best near that one."""

import math
from collections.abc import Callable, Iterable

FactorShare = Callable[[float], float]
"""Measures how much a factor explains; the more, the better."""
GOLDEN = (math.sqrt(5) - 1) / 2


def coarse(share: FactorShare, exponents: Iterable[float]) -> tuple[float, float]:
    """Return the best power of two, as what it explains and its exponent."""
    return max((share(2.0**exponent), exponent) for exponent in exponents)


def refined(share: FactorShare, exponent: float, apart: float, steps: int) -> float:
    """Return the best factor whose exponent is at most ``apart`` away, by steps of the golden section."""
    low, high = exponent - apart, exponent + apart

    def places() -> tuple[float, float]:
        return high - GOLDEN * (high - low), low + GOLDEN * (high - low)

    first, second = (share(2.0**one) for one in places())
    for _ in range(steps):
        if first > second:
            high = places()[1]
            first, second = share(2.0 ** places()[0]), first
        else:
            low = places()[0]
            first, second = second, share(2.0 ** places()[1])
    return float(2.0 ** ((low + high) / 2))
