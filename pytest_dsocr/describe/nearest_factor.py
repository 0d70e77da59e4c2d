"""Search for a factor, as a power of two: the best of some, and then the best near that one."""

from collections.abc import Callable, Iterable

FactorShare = Callable[[float], float]
"""Measures how much a factor explains; the more, the better."""
CLOSE = 1e-9
"""Distance of exponents at which a search ends."""


def coarse(share: FactorShare, exponents: Iterable[float]) -> tuple[float, float]:
    """Return the best power of two, as what it explains and its exponent."""
    return max((share(2.0**exponent), exponent) for exponent in exponents)


def refined(share: FactorShare, exponent: float, apart: float, steps: int) -> float:
    """Return the best factor whose exponent is at most ``apart`` away, after at most this many trials."""
    from scipy.optimize import minimize_scalar

    bounds, how = (exponent - apart, exponent + apart), {"xatol": CLOSE, "maxiter": steps}
    found = minimize_scalar(lambda one: -share(2.0**one), bounds=bounds, method="bounded", options=how)
    return float(2.0**found.x)
