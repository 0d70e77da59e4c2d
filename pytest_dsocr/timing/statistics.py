"""Tests whether a side is slower: rank tests on log times, corrected for the number of quantities and of looks.

The only assumption on the distribution of times is that noise affects both sides alike. Paired rounds use Wilcoxon's
signed-rank test, others that of Mann and Whitney, both exact and scipy's. A test and its interval use the same ranks,
so they cannot contradict each other. A shift that equals the limit counts against the finding, so ties only make a test
more careful.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_dsocr.timing.early import SHARE, distance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Samples = tuple[Sequence[float], Sequence[float]]
"""The milliseconds of the first side's rounds, and of the second's."""

ALPHA = 0.01
"""Highest rate of tables with a false alarm."""
UNSPENT = 1e-12
MOST_ROUNDS = 10_000
"""Upper bound of ``wanted``."""
ROUNDING = 1e-9
"""Difference up to which two shifts are equal."""


class TimingVerdict(StrEnum):
    """The verdict on a quantity's time."""

    FASTER = "FASTER"
    SAME = "SAME"
    NOT_SLOWER = "NOT-SLOWER"
    """FASTER or SAME: slower by the limit at most, and perhaps faster by more than it."""
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    NOT_COMPARED = "NOT-COMPARED"


Alternative = tuple[str, TimingVerdict]
"""A quantity and the hypothesis that is tested of it: SLOWER or FASTER."""
NO_SLOWER = (TimingVerdict.FASTER, TimingVerdict.SAME, TimingVerdict.NOT_SLOWER)
"""Verdicts that pass."""


@dataclass(frozen=True)
class Judgement:
    """Verdict on one quantity; ratios are the second side's time over the first's, so that 1.05 is 5 % slower."""

    quantity: str
    pace: TimingVerdict
    before_ms: float
    """The first side's median: the baseline's, or A's."""
    after_ms: float
    """The second side's median: the subject's, or B's."""
    ratio: float
    low: float
    high: float
    """The ends of the ratio's interval, at the confidence that the verdict asks for."""
    limit: float
    """Allowed slow-down: 0.05 is 5 %."""
    rounds: int
    """Pairs of rounds, or rounds of the side with fewer."""
    wanted: int
    """Estimated number of rounds that would settle it; the present number if it is settled."""
    reason: str = ""
    """Why it was not compared, or why more rounds would not settle it."""

    @classmethod
    def not_compared(cls, quantity: str, reason: str, sides: Samples = ((), ()), limit: float = math.nan) -> Judgement:
        """Return that of a quantity whose times cannot be compared."""
        few, nan = min(map(len, sides)), math.nan
        return cls(quantity, TimingVerdict.NOT_COMPARED, *_medians(sides), nan, nan, nan, limit, few, few, reason)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; NaN, for which JSON has no word, is null."""
        values = {name: None if value != value else value for name, value in asdict(self).items()}
        return {**values, "pace": str(self.pace)}

    @property
    def settled(self) -> bool:
        """Whether more rounds would change nothing."""
        return self.pace is not TimingVerdict.AMBIGUOUS

    @property
    def is_change(self) -> bool:
        """Whether it is known to take longer or shorter."""
        return self.pace in (TimingVerdict.SLOWER, TimingVerdict.FASTER)


def judge(
    times: Mapping[str, Samples],
    limits: Mapping[str, float],
    *,
    paired: bool,
    alpha: float = ALPHA,
    look: int = 1,
    looks: int = 1,
    margins: Mapping[str, float] = {},
) -> list[Judgement]:
    """Judge a table of quantities, each against its own limit.

    SLOWER and FASTER are tested against the limit itself, with Holm's correction over all quantities and both
    directions, since one false alarm spoils a table. SAME and NOT-SLOWER need no correction: a table passes only if
    every quantity does, and errors in all are no likelier than in one (an intersection-union test). If the rounds are
    too few to find a difference, no quantity is SAME either.

    Args:
        times: the rounds by quantity; paired rounds at the same index were taken one after the other.
        limits: how much slower each quantity may be; 0.05 is 5 %.
        paired: whether the two sides were interleaved; otherwise each side was a separate run.
        alpha: the rate of tables with a false alarm, over all their looks.
        look: number of this look at the growing rounds, from 1; at 0 only large differences are found.
        looks: the largest number of looks.
        margins: what a large difference has to exceed in addition, by quantity, as a logarithm.
    """
    reasons = {name: unusable(*sides) for name, sides in times.items()}
    shifts = {name: Shifts.between(*times[name], paired) for name, reason in reasons.items() if not reason}
    level = level_of(alpha, look, looks)
    p_values: dict[Alternative, float] = {}
    for name, one in shifts.items():
        limit = math.log1p(limits[name])
        p_values[name, TimingVerdict.SLOWER] = one.p_above(limit)
        p_values[name, TimingVerdict.FASTER] = one.p_below(-limit)
    tests = max(len(p_values), 1)
    far = {name: one.far(math.log1p(limits[name]) + margins.get(name, 0), tests, alpha) for name, one in shifts.items()}
    found = far | dict(holm(p_values, level))
    return [
        _judgement(name, shifts[name], sides, limits[name], found[name], level, level / tests)
        if name in shifts
        else Judgement.not_compared(name, reasons[name], sides, limits[name])
        for name, sides in times.items()
    ]


def _judgement(
    quantity: str,
    shifts: Shifts,
    sides: Samples,
    limit: float,
    found: TimingVerdict | None,
    level: float,
    strict: float,
) -> Judgement:
    """Return the verdict with its figures; ``strict`` is the level of the first of all the table's tests."""
    most = math.log1p(limit) + ROUNDING
    low, high = shifts.interval(level)
    if found and low == -math.inf:
        low, high = shifts.values[0], shifts.values[-1]
    within = TimingVerdict.SAME if -most <= low else TimingVerdict.NOT_SLOWER
    pace = found or (within if high <= most and shifts.least_p <= strict else TimingVerdict.AMBIGUOUS)
    rounds = min(map(len, sides))
    wanted = _wanted(shifts, rounds, math.log1p(limit), level, strict) if pace is TimingVerdict.AMBIGUOUS else rounds
    ratios = math.exp(shifts.centre), math.exp(low), math.exp(high)
    return Judgement(quantity, pace, *_medians(sides), *ratios, limit, rounds, wanted)


def _wanted(shifts: Shifts, rounds: int, limit: float, level: float, strict: float) -> int:
    """Estimate how many rounds would settle it: an interval shrinks with their square root."""
    if shifts.least_p > strict:
        return max(fewest_at(strict, shifts.paired), rounds + 1)
    centre = shifts.centre
    low, high = shifts.interval(level if centre <= limit else strict)
    shrink = max(high - centre, centre - low) / max(abs(centre - limit), ROUNDING)
    return max(rounds + 1, min(MOST_ROUNDS, math.ceil(rounds * shrink**2)))


def level_of(alpha: float, look: int, looks: int) -> float:
    """Return a look's share of ``alpha``: half of the remainder, and all of it for the last one.

    The first look gets most, since it has the fewest rounds to be significant with. The early look 0 gets almost
    nothing: large differences show without a test, and have a share of ``alpha`` of their own.
    """
    return UNSPENT if not look else alpha * (1 - SHARE) * 0.5 ** min(look, looks - 1)


def fewest_rounds(quantities: int, alpha: float, looks: int, paired: bool) -> int:
    """Return the fewest rounds of each side with which the first look at ``quantities`` can find a difference."""
    return fewest_at(level_of(alpha, 1, looks) / (2 * quantities), paired)


def fewest_at(level: float, paired: bool) -> int:
    """Return the fewest rounds of each side with which one test can be significant at this level."""
    rounds = 1
    while (0.5**rounds if paired else 1 / math.comb(2 * rounds, rounds)) > level:
        rounds += 1
    return rounds


def holm(p_values: Mapping[Alternative, float], level: float) -> Iterator[Alternative]:
    """Yield the significant keys if the chance of any error among all of them is to be at most ``level``."""
    for rank, key in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[key] > level / (len(p_values) - rank):
            return
        yield key


def unusable(before: Sequence[float], after: Sequence[float]) -> str:
    """Return why a quantity cannot be compared; empty if it can."""
    if not len(before) or not len(after):
        return "it has no rounds"
    if not all(0 < time < math.inf for side in (before, after) for time in side):
        return "not every time is a number above zero"
    return ""


def _medians(sides: Samples) -> tuple[float, float]:
    before, after = (float(median(side)) if len(side) else math.nan for side in sides)
    return before, after


@dataclass(frozen=True)
class Shifts:
    """The shifts that two samples of log times show: averages of paired steps (Walsh), or all differences."""

    values: NDArray[np.float64]
    """Ascending."""
    sizes: tuple[int, int]
    paired: bool

    @classmethod
    def between(cls, before: Sequence[float], after: Sequence[float], paired: bool) -> Shifts:
        """Return those from milliseconds of one side to the other's."""
        import numpy as np

        old, new = np.log(np.asarray(before, float)), np.log(np.asarray(after, float))
        if paired:
            ones, others = np.triu_indices(len(old))
            values = ((new - old)[ones] + (new - old)[others]) / 2
        else:
            values = np.subtract.outer(new, old)
        return cls(np.sort(values, axis=None), (len(old), len(new)), paired)

    @property
    def centre(self) -> float:
        """The estimate of Hodges and Lehmann: the median shift."""
        count = len(self.values)
        return float(self.values[(count - 1) // 2] + self.values[count // 2]) / 2

    @property
    def least_p(self) -> float:
        """The p-value if every value lies on one side."""
        return chance(0, self.sizes, self.paired)

    def far(self, limit: float, tests: int, alpha: float) -> TimingVerdict | None:
        """Return the direction if every value is so far beyond this limit that noise is ruled out."""
        shift = limit + distance(self.sizes, self.paired, tests, alpha)
        if self.values[0] > shift:
            return TimingVerdict.SLOWER
        return TimingVerdict.FASTER if self.values[-1] < -shift else None

    def p_above(self, shift: float) -> float:
        """Test whether the true shift is above this one; return the one-sided p-value."""
        return chance(int(self.values.searchsorted(shift + ROUNDING, side="right")), self.sizes, self.paired)

    def p_below(self, shift: float) -> float:
        """Test whether the true shift is below this one; return the one-sided p-value."""
        above = len(self.values) - int(self.values.searchsorted(shift - ROUNDING, side="left"))
        return chance(above, self.sizes, self.paired)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the shifts that neither test rejects at this level; unbounded if there are too few values."""
        rejected = _rejected(level, self.sizes, self.paired)
        if not rejected:
            return -math.inf, math.inf
        return float(self.values[rejected - 1]), float(self.values[-rejected])


@cache
def chance(below: int, sizes: tuple[int, int], paired: bool) -> float:
    """Return the probability that at most this many shifts are below the true one, by scipy on constructed samples."""
    from scipy import stats

    before, after = sizes
    if paired:  # ranks whose positive ones sum up to `below`, the largest first
        signed, left = [], below
        for rank in range(before, 0, -1):
            signed.append(rank if rank <= left else -rank)
            left -= max(signed[-1], 0)
        return float(stats.wilcoxon(signed, alternative="less", method="exact").pvalue)
    first = range(before)
    second = [min(max(below - before * k, 0), before) - 0.5 for k in range(after)]
    return float(stats.mannwhitneyu(second, first, alternative="less", method="exact").pvalue)


@cache
def _rejected(level: float, sizes: tuple[int, int], paired: bool) -> int:
    """Return how many shifts at either end are rejected at this level."""
    counts = range((sum(range(sizes[0] + 1)) if paired else math.prod(sizes)) + 1)
    return bisect_right(counts, level * (1 + ROUNDING), key=lambda below: chance(below, sizes, paired))
