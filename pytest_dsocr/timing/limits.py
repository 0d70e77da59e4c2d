"""Limits on slow-downs, and the numbers of rounds and interim looks."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from pytest_dsocr.base.words import listed
from pytest_dsocr.timing.statistics import ALPHA, Judgement, Samples, fewest_rounds

Watcher = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and the most there will be."""

DEFAULT = 0.05
"""Allowed slow-down of a quantity without a limit of its own."""
ANY = "*"
"""Name for the limit of every quantity that has none of its own."""
OF_PAGE = 0.005
"""The part of the page's time by which any stage may be slower."""
EACH_TOKEN = "decode"
"""Prefix of quantities that recur with each token; the time of one does not show its share of the page."""
LOOKS = (12, 24, 48)
"""Numbers of pairs of rounds after which they are judged; beyond the last, at each doubling."""
ALONE = 8
"""Rounds of a run without a baseline; enough to compare its own late steps with its early ones."""
TOKENS = 24
"""Limit of tokens of a timed page, unless another is given: eight steps at each end, and some between."""
SLOW_DOWN = re.compile(r"(?:^|::)test_is_no_slower\[([\w.]+)\]$")
"""The test of ``suites/perf`` whose expected failure is an accepted slow-down."""
MOST_TAKEN = 2
"""Largest number of rounds for each that is wanted, if some are spoilt."""


def limit_of(quantity: str, options: Mapping[str, float], medians_ms: Mapping[str, float], page_ms: float) -> float:
    """Return a quantity's relative limit; a stage that runs once a page may exceed it if it hardly affects the page.

    Args:
        quantity: its name, such as ``projector``.
        options: limits by quantity, and for all others as ``*``.
        medians_ms: the first side's median of each quantity.
        page_ms: the first side's median of the whole page.
    """
    limit = options.get(quantity, options.get(ANY, DEFAULT))
    median_ms = medians_ms[quantity]
    if quantity.startswith(EACH_TOKEN) or not (median_ms > 0 and page_ms > 0):
        return limit
    return max(limit, OF_PAGE * page_ms / median_ms)


def limits_of(times: Mapping[str, Samples], options: Mapping[str, float]) -> dict[str, float]:
    """Return the limit of each quantity of a table."""
    medians_ms = {name: median(before) for name, (before, _) in times.items()}
    return {name: limit_of(name, options, medians_ms, medians_ms.get("page", 0.0)) for name in times}


def looks_at(quantities: int, most_rounds: int = LOOKS[-1]) -> tuple[int, ...]:
    """Return after how many pairs of rounds these quantities are judged: never before a test can find anything."""
    fewest = max(fewest_rounds(max(quantities, 1), ALPHA, len(LOOKS), paired=True), LOOKS[0])
    doubled = (LOOKS[0] << k for k in range(1, most_rounds.bit_length()))
    return (*(look for look in (fewest + fewest % 2, *doubled) if look < most_rounds), most_rounds)


def is_over(judgements: Sequence[Judgement]) -> bool:
    """Return whether all quantities are settled or have a reason not to be; False before the first look."""
    return bool(judgements) and all(one.settled or one.reason for one in judgements)


def known(judgements: Sequence[Judgement], spoilt: Sequence[str]) -> Iterator[str]:
    """Yield what is known while rounds are taken: verdicts, what is open, and what spoils most rounds."""
    yield from (f"{one.quantity} {one.ratio:.2f} {one.pace}" for one in judgements if one.is_change)
    if left := [one.quantity for one in judgements if not one.settled]:
        yield f"open: {listed(left)}"
    yield from (f"{times} spoilt: {why}" for why, times in Counter(spoilt).most_common(1))
