"""How much slower a quantity may be, how many rounds are taken, in which order, and when they are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from pytest_dsocr.perf.statistics import ALPHA, Judgement, Sides, fewest_rounds

DEFAULT = 0.05
"""How much slower a quantity may be, where nothing else is said."""
ANY = "*"
"""The name under which a limit is given for every quantity that has none of its own."""
OF_PAGE = 0.005
"""The part of the page's time by which any stage may be slower."""
EACH_TOKEN = "decode"
"""The prefix of quantities that recur with each token; the time of one says nothing of its share of the page."""
LOOKS = (12, 24, 48)
"""After how many pairs of rounds they are judged; there are no more after the last."""
ALONE = 8
"""Rounds of a run without a baseline; enough to compare its own late steps with its early ones."""
TOKENS = 24
"""Ceiling of the output of a timed page, where none is named: eight steps at each end, and some between."""
MOST_TAKEN = 2
"""The most rounds to take for each that is wanted, where some are spoilt."""


def limit_of(quantity: str, options: Mapping[str, float], medians_ms: Mapping[str, float], page_ms: float) -> float:
    """Return a quantity's relative limit; that of a stage which runs once a page is raised where it hardly matters.

    Args:
        quantity: its name, such as ``sam``.
        options: limits by quantity, and of all others as ``*``.
        medians_ms: the first side's median of each quantity.
        page_ms: the first side's median of the whole page.
    """
    limit = options.get(quantity, options.get(ANY, DEFAULT))
    median_ms = medians_ms[quantity]
    if quantity.startswith(EACH_TOKEN) or not (median_ms > 0 and page_ms > 0):
        return limit
    return max(limit, OF_PAGE * page_ms / median_ms)


def limits_of(times: Mapping[str, Sides], options: Mapping[str, float]) -> dict[str, float]:
    """Return the limit of each quantity of a table."""
    medians_ms = {name: median(before) for name, (before, _) in times.items()}
    return {name: limit_of(name, options, medians_ms, medians_ms.get("page", 0.0)) for name in times}


def looks_at(quantities: int, most_rounds: int = LOOKS[-1]) -> tuple[int, ...]:
    """Return after how many pairs of rounds these quantities are judged: never before a test can find anything."""
    fewest = max(fewest_rounds(max(quantities, 1), ALPHA, len(LOOKS), paired=True), LOOKS[0])
    return (*(look for look in (fewest + fewest % 2, *LOOKS[1:]) if look < most_rounds), most_rounds)


def is_over(judgements: Sequence[Judgement]) -> bool:
    """Return whether a table is settled, or more rounds settle nothing of what is left; not before its first look."""
    return bool(judgements) and all(one.settled or one.reason for one in judgements)


def order(pair: int) -> tuple[int, int]:
    """Return which side (0 or 1) reads first in this pair of rounds, and which reads then.

    Pairs alternate (ABBA), so that over two of them a machine that gets steadily slower favours no side.
    """
    return (1, 0) if pair % 2 else (0, 1)
