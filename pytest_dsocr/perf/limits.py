"""How much slower a quantity may be."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from pytest_dsocr.perf.statistics import Sides

DEFAULT = 0.05
ANY = "*"
"""The name under which a limit is given for every quantity that has none of its own."""
OF_PAGE = 0.005
"""The part of the page's time by which any stage may be slower."""
EACH_TOKEN = "decode"
"""How quantities begin of which a page has as many as tokens; one of them says nothing of its part in the page."""


def limit_of(quantity: str, given: Mapping[str, float], medians_ms: Mapping[str, float], page_ms: float) -> float:
    """Give a quantity's relative limit; a stage of which a page has one is raised to what hardly matters.

    Args:
        quantity: its name, such as ``sam``.
        given: limits by quantity, and of all others as ``*``.
        medians_ms: the first side's median of each quantity.
        page_ms: the first side's median of the whole page.
    """
    limit = given.get(quantity, given.get(ANY, DEFAULT))
    median_ms = medians_ms[quantity]
    if quantity.startswith(EACH_TOKEN) or not (median_ms > 0 and page_ms > 0):
        return limit
    return max(limit, OF_PAGE * page_ms / median_ms)


def limits_of(times: Mapping[str, Sides], given: Mapping[str, float]) -> dict[str, float]:
    """Give the limit of each quantity of a table."""
    medians_ms = {name: median(before) for name, (before, _) in times.items()}
    return {name: limit_of(name, given, medians_ms, medians_ms.get("page", 0.0)) for name in times}


def percent(share: float) -> str:
    """Give a share with three digits at most."""
    return f"{100 * share:.3g} %"
