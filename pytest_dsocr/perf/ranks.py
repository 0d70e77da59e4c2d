"""Rank tests of a shift between two samples, with the interval of the same test; exact, and without a distribution.

Paired samples take Wilcoxon's signed-rank test, by its Walsh averages; others take the test of Mann and Whitney, by all
differences. Both count the shifts on one side of the value that is asked about. A shift that equals it counts against
the finding, so that ties only make a test more careful.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

ROUNDING = 1e-9
"""What two shifts may differ by and still be equal."""


@dataclass(frozen=True)
class Shifts:
    """The shifts that two samples show, and how likely it is that few of them lie on one side of the true one."""

    values: Numbers
    """Ascending."""
    chances: Numbers
    """At ``k``: that ``k`` values or fewer lie below the true shift; the same above it."""

    @classmethod
    def of_pairs(cls, before: Sequence[float], after: Sequence[float]) -> Shifts:
        """Take the shifts from values of one sample to those at the same place of the other."""
        import numpy as np

        steps = np.asarray(after, float) - np.asarray(before, float)
        ones, others = _walsh_places(len(steps))
        return cls(np.sort((steps[ones] + steps[others]) / 2), _signed_rank_chances(len(steps)))

    @classmethod
    def of_runs(cls, before: Sequence[float], after: Sequence[float]) -> Shifts:
        """Take the shifts from all values of one sample to all of the other."""
        import numpy as np

        steps = np.subtract.outer(np.asarray(after, float), np.asarray(before, float))
        return cls(np.sort(steps, axis=None), _mann_whitney_chances(len(before), len(after)))

    @property
    def centre(self) -> float:
        """The estimate of Hodges and Lehmann."""
        places = len(self.values)
        return float(self.values[(places - 1) // 2] + self.values[places // 2]) / 2

    @property
    def least_p(self) -> float:
        """The p-value where every value lies on one side."""
        return float(self.chances[0])

    def p_above(self, shift: float) -> float:
        """Test whether the true shift is above this one; give the one-sided p-value."""
        return float(self.chances[self.values.searchsorted(shift + ROUNDING, side="right")])

    def p_below(self, shift: float) -> float:
        """Test whether the true shift is below this one; give the one-sided p-value."""
        return float(self.chances[len(self.values) - self.values.searchsorted(shift - ROUNDING, side="left")])

    def interval(self, level: float) -> tuple[float, float]:
        """Give the shifts that neither test rejects at this level; without an end where there are too few values."""
        rejected = int(self.chances.searchsorted(level * (1 + ROUNDING), side="right"))
        if not rejected:
            return -math.inf, math.inf
        return float(self.values[rejected - 1]), float(self.values[-rejected])


def fewest(level: float, paired: bool) -> int:
    """Give the fewest rounds of each side with which a test can be significant at this level."""
    rounds = 1
    while (0.5**rounds if paired else 1 / math.comb(2 * rounds, rounds)) > level:
        rounds += 1
    return rounds


@cache
def _walsh_places(pairs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    import numpy as np

    return np.triu_indices(pairs)


@cache
def _signed_rank_chances(pairs: int) -> Numbers:
    """Sum up the ranks of which each has its sign by a coin."""
    import numpy as np

    share = np.ones(1)
    for rank in range(1, pairs + 1):
        share = (np.pad(share, (0, rank)) + np.pad(share, (rank, 0))) / 2
    return share.cumsum()


@cache
def _mann_whitney_chances(before: int, after: int) -> Numbers:
    """Sum up the coefficients of the Gaussian binomial, by its product; the upper half mirrors the lower one."""
    import numpy as np

    total = before * after
    ways = np.zeros(total + 1)
    ways[0] = 1
    for factor in range(1, before + 1):
        ways[after + factor :] -= ways[: max(total + 1 - after - factor, 0)].copy()
        for start in range(factor):
            ways[start::factor] = ways[start::factor].cumsum()
    half = total // 2 + 1
    ways[half:] = ways[: total + 1 - half][::-1]
    chances: Numbers = ways.cumsum() / ways.sum()
    return chances
