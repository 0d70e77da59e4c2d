"""Forecast of a bench after its first pairs: how many pairs fit into the time, and which change they can show."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from pytest_dsocr.base.words import count, listed
from pytest_dsocr.timing.early import AGREEING, of_pairs
from pytest_dsocr.timing.limits import ANY, DEFAULT
from pytest_dsocr.timing.pairs import PairedRounds, Quantities
from pytest_dsocr.timing.rounds import PAGE
from pytest_dsocr.timing.statistics import ALPHA, fewest_at, level_of

SCATTER = 0.02
"""Spread of the pairs' ratios that the forecast assumes: rented hosts had 0.7 to 1.6 % in rounds of decode steps."""


def outlook(pairs: PairedRounds) -> str:
    """Say how many pairs of each group fit, and from which slow-down on they can tell that B is slower."""
    took_s = {group: took_s for group, took_s in pairs.took_s.items() if pairs.asked(group)}
    fitting = pairs_that_fit(took_s, pairs.looks, pairs.budget.for_rounds_s)
    return f"time for {listed([_group(pairs, group, number) for group, number in fitting.items()])}"


def pairs_that_fit(took_s: Mapping[Quantities, float], looks: Sequence[int], left_s: float) -> dict[Quantities, int]:
    """Return how many pairs of each group fit into the seconds that are left, in the order of :class:`PairedRounds`."""
    fitting = dict.fromkeys(took_s, 1)
    for upto in (min(AGREEING, looks[-1]), *looks):
        for group, each_s in took_s.items():
            more = upto - fitting[group]
            if math.isfinite(left_s):
                more = min(more, int(max(left_s, 0) / max(each_s, 1e-9)))
            fitting[group] += max(more, 0)
            left_s -= max(more, 0) * each_s
    return fitting


def least_slowdown(pairs: int, quantities: int, looks: int, limit: float) -> float:
    """Return the smallest slow-down of one quantity that this many pairs can tell, such as 0.26; infinite for one pair.

    Args:
        pairs: number of pairs.
        quantities: number of quantities that are judged.
        looks: number of interim looks.
        limit: allowed slow-down.
    """
    tests = 2 * quantities
    level = level_of(ALPHA, 1, looks) / tests
    beyond = of_pairs(pairs, tests, ALPHA)
    if pairs >= fewest_at(level, paired=True):
        beyond = min(beyond, -NormalDist().inv_cdf(level) * SCATTER / math.sqrt(pairs))
    return math.expm1(math.log1p(limit) + beyond)


def _group(pairs: PairedRounds, group: Quantities, fitting: int) -> str:
    limit = min(pairs.slower.get(name, pairs.slower.get(ANY, DEFAULT)) for name in pairs.asked(group))
    least = least_slowdown(fitting, pairs.quantities, len(pairs.looks), limit)
    what = "the whole page" if PAGE in group else "the stages and first steps"
    known = (
        f"a slow-down of {least:.{least < 0.1:d}%} can be told" if math.isfinite(least) else "too few to tell anything"
    )
    same = "" if fitting >= pairs.fewest else f", SAME needs {pairs.fewest}"
    return f"{count(fitting, 'pair')} of {what} ({known}{same})"
