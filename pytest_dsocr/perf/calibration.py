"""What verdicts are worth on a machine: tables of the same thing against itself, as it is and with a slowdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Annotated

from msgspec import Meta

from pytest_dsocr.foundation.files import seal, unseal
from pytest_dsocr.foundation.reading import Finite, Format, Identity
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.limits import percent
from pytest_dsocr.perf.schedule import look_at, looks_for
from pytest_dsocr.perf.statistics import Sides, unusable

SLOWDOWNS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30)
OFTEN = 0.95
"""The share of windows in which a slowdown is to be found."""
ALARMS = frozenset({Pace.SLOWER, Pace.FASTER})

Window = Mapping[str, Sides]
"""Pairs of rounds of the same thing, by quantity, as many as make a table."""


@dataclass(frozen=True)
class Calibration:
    """What one machine's tables of the same thing against itself showed."""

    windows: Annotated[int, Meta(ge=1)]
    pairs: int
    """Of rounds, that the windows were drawn from; windows overlap."""
    false_alarms: int
    """Tables in which anything was called slower or faster."""
    alarms: Mapping[str, int]
    """By quantity: in how many windows it was called slower or faster."""
    ambiguous: Mapping[str, int]
    """By quantity: in how many windows it could not be told."""
    spread: Mapping[str, Finite]
    """By quantity: how much the two processes of a pair differ, at the median over pairs; 0.01 is 1 %."""
    smallest_found: Mapping[str, Finite | None]
    """By quantity: the smallest slowdown that is found in 95 of 100 windows, of either side; none where even the
    largest is not."""
    limits: Mapping[str, Finite]
    """How much slower each quantity was allowed to be."""
    made: str = ""
    """The day, as ``2026-11-22``."""
    of: Identity = field(default_factory=dict)
    """The identity of what was measured; see :class:`pytest_dsocr.perf.rounds.Measured`."""

    @property
    def false_alarm_interval(self) -> tuple[float, float]:
        """Where the share of tables with a false alarm lies, 95 times in 100."""
        return wilson(self.false_alarms, self.windows)

    def sentence(self, quantity: str) -> str:
        """Say what a verdict on this quantity is worth here."""
        found, most = self.smallest_found[quantity], SLOWDOWNS[-1]
        slowdown = f"a slowdown of {percent(found)}" if found else f"no slowdown up to {percent(most)}"
        return (
            f"on this machine: {self.false_alarms} of {self.windows} false alarms; "
            f"{slowdown} of {quantity} is found {100 * OFTEN:.0f} times in 100"
        )

    def to_bytes(self) -> bytes:
        """Give it as sealed JSON."""
        return seal(asdict(self))


CALIBRATIONS = Format(Calibration, "make it anew: dsocr bench --calibrate A", parse=unseal)


def calibrate(
    windows: Sequence[Window],
    limits: Mapping[str, float],
    looks: Sequence[int] = (),
    processes: Sequence[Window] = (),
) -> Calibration:
    """Judge each window as it is, and with slowdowns multiplied into one side of one quantity after the other.

    Args:
        windows: tables of pairs, each as long as a judged one may get. Where one of two processes is a little slower by
            itself, a slowdown of that one is found sooner than of the other; so each side has its turn.
        limits: how much slower each quantity may be.
        looks: after how many pairs they are judged; as always where it is left out.
        processes: the pairs that each process took; the windows, where it is left out.

    Raises:
        ValueError: where there is no window.
    """
    if not windows:
        raise ValueError("a calibration needs a window of rounds")
    quantities = tuple(windows[0])
    looks = looks or looks_for(len(quantities))
    processes = processes or windows
    tables = [look_at(window, limits, looks) for window in windows]
    return Calibration(
        windows=len(windows),
        pairs=sum(len(part[quantities[0]][0]) for part in processes),
        false_alarms=sum(any(one.pace in ALARMS for one in table) for table in tables),
        alarms={quantity: _count(tables, quantity, ALARMS) for quantity in quantities},
        ambiguous={quantity: _count(tables, quantity, {Pace.AMBIGUOUS}) for quantity in quantities},
        spread={quantity: spread_of([part[quantity] for part in processes]) for quantity in quantities},
        smallest_found={quantity: _smallest_found(windows, quantity, limits, looks) for quantity in quantities},
        limits=dict(limits),
    )


def spread_of(parts: Sequence[Sides]) -> float:
    """Give how much the two processes of a pair differ in a quantity, at the median over pairs: 0.01 is 1 %."""
    apart = [
        abs(math.log(statistics.median(after) / statistics.median(before)))
        for before, after in parts
        if not unusable(before, after, True)
    ]
    return math.expm1(statistics.median(apart)) if apart else 0.0


def wilson(found: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Give Wilson's interval of a share, at 95 % for the usual ``z``."""
    share, weight = found / trials, z**2 / trials
    middle = share + weight / 2
    width = z * math.sqrt((share * (1 - share) + weight / 4) / trials)
    return max((middle - width) / (1 + weight), 0.0), min((middle + width) / (1 + weight), 1.0)


def _count(tables: Iterable[Iterable[Judgement]], quantity: str, paces: Set[Pace]) -> int:
    return sum(one.quantity == quantity and one.pace in paces for table in tables for one in table)


def _smallest_found(
    windows: Sequence[Window], quantity: str, limits: Mapping[str, float], looks: Sequence[int]
) -> float | None:
    most_missed = 2 * len(windows) - math.ceil(OFTEN * 2 * len(windows))
    for slowdown in SLOWDOWNS:
        missed = (not _found(one, quantity, slowdown, limits, looks) for one in chain(windows, map(_turned, windows)))
        if len([*islice(filter(None, missed), most_missed + 1)]) <= most_missed:
            return slowdown
    return None


def _turned(window: Window) -> Window:
    return {quantity: (after, before) for quantity, (before, after) in window.items()}


def _found(window: Window, quantity: str, slowdown: float, limits: Mapping[str, float], looks: Sequence[int]) -> bool:
    before, after = window[quantity]
    slowed = {**window, quantity: (before, [time * (1 + slowdown) for time in after])}
    return _count([look_at(slowed, limits, looks)], quantity, {Pace.SLOWER}) == 1
