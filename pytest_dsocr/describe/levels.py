"""Pixels that are a function of the expected level alone: another normalisation, gamma, cut or rounding.

The function is a table of 256 levels, fitted on half of the pixels and verified on the other half.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description

LEVELS = 256
TABLE = "table"
"""Kind of a function of the level without a name."""
HALF = 0.5
"""Difference in levels from which on a value differs."""
OF_ROUNDING = 0.3
"""Difference from a level, in levels, above that of a pixel that is rounded to bfloat16."""
CLOSE = 0.6
"""Largest difference in levels at which a formula gives a table's value."""
EXACT = 0.98
"""Share that a function of the level alone explains: only a value's rounding is left."""
LEAST_SEEN = 4
"""Number of pixels from which on a level's value is known."""
LEAST_LEVELS = 8
SHOWN = 5
OVERSHOOT = 48
"""Levels next to an end that a resizing changes much."""
STEP_OF_VALUE = 2**-8
"""Rounding of a bfloat16 value, relative to it."""
LEAST_SHIFT = 0.05
"""Difference in levels below which a shift of all levels says nothing."""
STEEP = 5e-3
"""Difference of a slope from 1 that is mere rounding."""


class Line(NamedTuple):
    """A line of levels, cut off below 0 and above 255, by the levels between that it runs."""

    first: int
    last: int
    to_first: int
    to_last: int

    @classmethod
    def through(cls, slope: float, offset: float) -> Line:
        """Return the nearest line with whole ends: those of the range that it compresses, or widens."""
        most = LEVELS - 1
        if abs(slope) <= 1:
            return cls(0, most, round(offset), round(offset + slope * most))
        return cls(round(-offset / slope), round((most - offset) / slope), 0, most)

    @classmethod
    def fitted(cls, actual: Tensor, expected: Tensor) -> Line | None:
        """Return the line near the means of most levels; None if it does not explain half of the difference.

        Levels near the ends are cut off where a resizing overshoots, and bars have a level of their own.
        """
        table, known = _table(actual, expected.long())
        known[:OVERSHOOT] = known[-OVERSHOOT:] = False
        level, value = torch.arange(LEVELS)[known].float(), table[known]
        if len(level) < LEAST_LEVELS:
            return None
        slope, offset = _fitted(level, value)
        near = (level * slope + offset - value).abs() < 2
        if float(near.float().mean()) < ENOUGH or not slope:
            return None
        line = cls.through(*_fitted(level[near], value[near]))
        if line.first == line.last or (line.at(expected) - actual).norm() > HALF * (expected - actual).norm():
            return None
        return line

    def at(self, level: Tensor) -> Tensor:
        """Return what the line makes of levels, not rounded."""
        slope = (self.to_last - self.to_first) / (self.last - self.first)
        return (self.to_first + (level - self.first) * slope).clamp(0, LEVELS - 1)

    @property
    def neighbours(self) -> list[Line]:
        """The lines with ends that are at most one level away: resizing moves all means a little."""
        is_narrow = (self.first, self.last) == (0, LEVELS - 1)
        ends = ("to_first", "to_last") if is_narrow else ("first", "last")
        moves = product((0, -1, 1), repeat=2)
        return [
            self._replace(**{end: getattr(self, end) + by for end, by in zip(ends, move, strict=True)})
            for move in moves
        ]

    @property
    def words(self) -> str:
        """Name the line by its ends."""
        return f"level {self.first} is {self.to_first} and level {self.last} is {self.to_last}, on a line"


def relations(actual: Tensor, expected: Tensor) -> Iterator[Description | None]:
    """Yield the functions of the level: one for all colours, then one for each colour.

    Args:
        actual: the subject's levels ``[N, 3, H, W]``.
        expected: the expected levels, whole numbers.
    """
    yield _described(actual, expected)
    tables = [_described(actual[:, k], expected[:, k]) for k in range(3)]
    known = [one for one in tables if one is not None]
    if len(known) == 3:
        text = "; ".join(f"{colour}: {one.text}" for colour, one in zip(("red", "green", "blue"), known, strict=True))
        kind = TABLE if TABLE in {one.kind for one in known} else "levels"
        yield Description(kind, text, min(one.share for one in known), sum(one.cases for one in known))


def _described(actual: Tensor, expected: Tensor) -> Description | None:
    own, right = actual.flatten(), expected.flatten().long().clamp(0, LEVELS - 1)
    fit = torch.zeros(len(own), dtype=torch.bool)
    fit[::2] = True
    table, known = _table(own[fit], right[fit])
    if int(known.sum()) < LEAST_LEVELS:
        return None
    test = ~fit & known[right]
    left, before = (own[test] - table[right[test]]).norm(), (own[test] - right[test]).norm()
    share = max(0.0, 1 - float(left / before)) if before else 0.0
    if share < EXACT:
        return None
    level, value = torch.arange(LEVELS)[known].float(), table[known]
    words = _line(level, value) or _gamma(level, value)
    return Description("levels" if words else TABLE, words or _shown(level, value), share, int(test.sum()))


def _table(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the subject's levels by the expected level, and the levels that are seen often enough."""
    seen = torch.bincount(expected, minlength=LEVELS)
    sums = torch.bincount(expected, actual.double(), LEVELS)
    return (sums / seen.clamp_min(1)).float(), seen >= LEAST_SEEN


def _line(level: Tensor, value: Tensor) -> str | None:
    """Return the normalisation, if the values lie on a line, clipped or not."""
    inside = (value > value.min() + CLOSE) & (value < value.max() - CLOSE)
    if int(inside.sum()) < LEAST_LEVELS:
        return None
    slope, offset = _fitted(level[inside], value[inside])
    line = level * slope + offset
    low, high = float(value.min()), float(value.max())
    near = CLOSE + (value - 127.5).abs() * STEP_OF_VALUE
    if bool(((line.clamp(low, high) - value).abs() > near).any()) or not slope:
        return None
    ends = [f"not below {low:.0f}"] * bool((line < low - CLOSE).any() and low > CLOSE)
    ends += [f"not above {high:.0f}"] * bool((line > high + CLOSE).any() and high < LEVELS - 1 - CLOSE)
    cut = f"clipped: {' and '.join(ends)}" if ends else ""
    if abs(slope - 1) < STEEP and cut and abs(offset) < 2 * CLOSE:
        return f"the levels are {cut}"
    if abs(slope - 1) < STEEP:
        if abs(slope - 1) * LEVELS > HALF:
            is_factor = abs(offset) < HALF
            words = f"every level is multiplied by {slope:.4g}" if is_factor else _of_ends(slope, offset)
            return ", ".join(filter(None, (words, cut)))
        if _mean(value - level) < LEAST_SHIFT:
            return None
        way = "higher" if offset > 0 else "lower"
        return ", ".join(filter(None, (f"every level is {_mean(value - level):.3g} {way}", cut)))
    if value.equal(value.round()) and abs(slope + 1) > STEEP:
        return ", ".join(filter(None, (Line.through(slope, offset).words, cut)))
    return ", ".join(filter(None, (_normalised(slope, offset), cut)))


def _of_ends(slope: float, offset: float) -> str:
    """Name a line that is nearly right by both of its ends, and by the normalisation that has them."""
    mean, std = (127.5 - offset) / slope, 127.5 / slope
    ends = f"level 0 is {offset:.3g} and level 255 is {slope * 255 + offset:.4g}"
    return f"{ends}: pixels are (level - {mean:.4g}) / {std:.4g} instead of (level - 127.5) / 127.5"


def _mean(apart: Tensor) -> float:
    return abs(float(apart.median()))


def _normalised(slope: float, offset: float) -> str:
    if abs(slope + 1) < STEEP:
        return "the levels are inverted"
    mean, std = -(offset / 127.5 - 1) / (slope / 127.5) / 255, 1 / (slope * 2)
    first, last = (abs(round((slope * one + offset) / 127.5 - 1, 2)) + 0.0 for one in (0, 255))
    if first == 0.0:
        return f"the pixels are from 0 to {last:.4g} instead of -1 to 1"
    return f"normalised with mean {mean:.3f} and std {std:.3f} instead of 0.5 and 0.5"


def _fitted(x: Tensor, y: Tensor) -> tuple[float, float]:
    apart = x - x.mean()
    slope = float((apart * (y - y.mean())).sum() / apart.pow(2).sum().clamp_min(1e-12))
    return slope, float(y.mean() - slope * x.mean())


def _gamma(level: Tensor, value: Tensor) -> str | None:
    inside = (level > 8) & (level < 247) & (value > 1) & (value < 254)
    if int(inside.sum()) < LEAST_LEVELS:
        return None
    own, right = (value[inside] / 255).log(), (level[inside] / 255).log()
    gamma = float((own * right).sum() / right.pow(2).sum())
    fits = float((255 * (level / 255).pow(gamma) - value).abs().max()) < 2 * CLOSE
    return f"every level has a gamma of {gamma:.3g}" if fits and abs(gamma - 1) > 4 * STEEP else None


def _shown(level: Tensor, value: Tensor) -> str:
    """Name the levels that change most."""
    places = (value - level).abs().argsort(descending=True)[:SHOWN].sort().values
    shown = ", ".join(f"{int(level[k])} is {float(value[k]):.4g}" for k in places)
    return f"a function of the level alone: {shown}"
