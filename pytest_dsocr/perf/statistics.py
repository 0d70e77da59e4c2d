"""Whether a side is slower: rank tests on log times, corrected for the number of quantities and of looks.

Nothing is assumed of how times are distributed but that noise hits both sides alike. A test and its interval come from
the same ranks, so that they cannot contradict each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_dsocr.perf import ranks
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.ranks import ROUNDING, Shifts

Sides = tuple[Sequence[float], Sequence[float]]
"""The milliseconds of the first side's rounds, and of the second's."""
Key = TypeVar("Key", bound=Hashable)

ALPHA = 0.01
"""How often a table may have a false alarm."""
SPREADS = 4
"""So many times their median, differences between processes are taken to reach: 99 in 100 normal ones do not."""
MOST_ROUNDS = 10_000
"""What ``wanted`` is at most."""


def judge(
    times: Mapping[str, Sides],
    limits: Mapping[str, float],
    *,
    paired: bool,
    alpha: float = ALPHA,
    look: int = 1,
    looks: int = 1,
    spread: Mapping[str, float] | None = None,
) -> list[Judgement]:
    """Judge a table of quantities, each against its own limit.

    SLOWER and FASTER are tested against the limit itself, with Holm's correction over all quantities and both
    directions, since one false alarm spoils a table. SAME needs no correction: a table is called the same only where
    each quantity is, and that all of several errors happen is no likelier than one of them (an intersection-union
    test). Where the rounds are too few to find anything, nothing is the same either.

    Args:
        times: the rounds by quantity; of paired ones, those at the same place were taken in turn.
        limits: how much slower each quantity may be; 0.05 is 5 %.
        paired: whether the two sides were interleaved; otherwise each was a run by itself.
        alpha: how often a table may have a false alarm, over all its looks.
        look: which look at the growing rounds this is, from 1.
        looks: how many looks there may be.
        spread: by quantity, how much two processes of the same thing differ at the median: 0.01 is 1 %. Rounds of one
            process tell nothing of the next one, so this is added to what they leave open.
    """
    spread = spread or {}
    reasons = {quantity: unusable(*sides, paired) for quantity, sides in times.items()}
    asked = {
        quantity: _Question.of(times[quantity], paired, limits[quantity], spread.get(quantity, 0))
        for quantity, reason in reasons.items()
        if not reason
    }
    level = level_of(alpha, look, looks)
    rule = _Rule(level, level / max(2 * len(asked), 1), paired)
    found = dict(holm({key: p for name, one in asked.items() for key, p in one.p_values(name)}, level))
    return [
        asked[quantity].judgement(quantity, _medians(sides), limits[quantity], rule, found.get(quantity))
        if quantity in asked
        else _not_compared(quantity, sides, limits[quantity], reasons[quantity])
        for quantity, sides in times.items()
    ]


def level_of(alpha: float, look: int, looks: int) -> float:
    """Give a look its part of ``alpha``: half of what is left, and the last one all of it.

    The first look gets most, since it has the fewest rounds to be significant with.
    """
    return alpha * 0.5 ** min(look, looks - 1)


def fewest_rounds(quantities: int, alpha: float, looks: int, paired: bool, look: int = 1) -> int:
    """Give the fewest rounds of each side with which a table of so many quantities can find anything."""
    return ranks.fewest(level_of(alpha, look, looks) / (2 * quantities), paired)


def holm(p_values: Mapping[Key, float], level: float) -> Iterator[Key]:
    """Give what is significant where the chance of any error among all of these is to be at most ``level``."""
    for rank, key in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[key] > level / (len(p_values) - rank):
            return
        yield key


@dataclass(frozen=True)
class _Rule:
    """What a table's verdicts ask for."""

    level: float
    strict: float
    """The level of the first of all its tests, where Holm's correction is largest."""
    paired: bool


@dataclass(frozen=True)
class _Question:
    """Whether a quantity's log times shifted by more than a limit."""

    shifts: Shifts
    rounds: int
    limit: float
    """As a logarithm."""
    apart: float
    """How far two processes of the same thing may be apart; a logarithm too."""

    @classmethod
    def of(cls, sides: Sides, paired: bool, limit: float, spread: float) -> _Question:
        logs = [[math.log(time) for time in side] for side in sides]
        shifts = Shifts.of_pairs(*logs) if paired else Shifts.of_runs(*logs)
        return cls(shifts, min(map(len, sides)), math.log1p(limit), SPREADS * math.log1p(spread))

    def p_values(self, quantity: str) -> Iterator[tuple[tuple[str, Pace], float]]:
        """Test for either direction."""
        yield (quantity, Pace.SLOWER), self.shifts.p_above(self.limit + self.apart)
        yield (quantity, Pace.FASTER), self.shifts.p_below(-self.limit - self.apart)

    def judgement(
        self, quantity: str, medians: tuple[float, float], limit: float, rule: _Rule, found: Pace | None
    ) -> Judgement:
        """Give the verdict, with what it rests on."""
        low, high = self.interval(rule.level)
        within = -self.limit - ROUNDING <= low and high <= self.limit + ROUNDING
        enough = self.shifts.least_p <= rule.strict
        pace = found or (Pace.SAME if within and enough else Pace.AMBIGUOUS)
        ratios = math.exp(self.shifts.centre), math.exp(low), math.exp(high)
        if pace is not Pace.AMBIGUOUS:
            return Judgement(quantity, pace, *medians, *ratios, limit, self.rounds, self.rounds)
        wanted, reason = self.wanted(rule)
        return Judgement(quantity, pace, *medians, *ratios, limit, self.rounds, wanted, reason)

    def interval(self, level: float) -> tuple[float, float]:
        """Give the shifts that rounds and processes leave open."""
        low, high = self.shifts.interval(level)
        return low - self.apart, high + self.apart

    def wanted(self, rule: _Rule) -> tuple[int, str]:
        """Estimate how many rounds would settle it, as an interval shrinks with their square root; say why none do."""
        fewest = ranks.fewest(rule.strict, rule.paired)
        centre = abs(self.shifts.centre)
        room = abs(centre - self.limit) - self.apart
        if self.shifts.least_p > rule.strict:
            return max(fewest, self.rounds + 1), ""
        if room <= 0 < self.apart:
            return MOST_ROUNDS, "processes of the same thing differ by as much; more rounds do not settle it"
        low, high = self.shifts.interval(rule.level if centre <= self.limit else rule.strict)
        width = max(high - self.shifts.centre, self.shifts.centre - low)
        shrink = width / max(room, ROUNDING)
        return max(self.rounds + 1, min(MOST_ROUNDS, math.ceil(self.rounds * shrink**2))), ""


def unusable(before: Sequence[float], after: Sequence[float], paired: bool) -> str:
    """Say why a quantity cannot be compared; nothing if it can."""
    if not len(before) or not len(after):
        return "it has no rounds"
    if paired and len(before) != len(after):
        return f"its rounds are no pairs: {len(before)} and {len(after)}"
    if not all(0 < time < math.inf for side in (before, after) for time in side):
        return "not every time is a number above zero"
    return ""


def _not_compared(quantity: str, sides: Sides, limit: float, reason: str) -> Judgement:
    few, none = min(map(len, sides)), math.nan
    return Judgement(quantity, Pace.NOT_COMPARED, *_medians(sides), none, none, none, limit, few, few, reason)


def _medians(sides: Sides) -> tuple[float, float]:
    before, after = (float(statistics.median(side)) if len(side) else math.nan for side in sides)
    return before, after
