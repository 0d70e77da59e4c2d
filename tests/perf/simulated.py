"""Rounds of machines that are known: noise of several shapes, drift, load, and a planted slowdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pytest_dsocr.perf.limits import is_over
from pytest_dsocr.perf.statistics import Judgement, Pace, judge

Numbers = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Numbers]
Times = dict[str, tuple[list[float], list[float]]]
MEAN_MS = 15.0


def normal(rng: np.random.Generator, rounds: int) -> Numbers:
    """2 % of noise, of which the logarithm is normally distributed."""
    return rng.normal(0, 0.02, rounds)


def heavy(rng: np.random.Generator, rounds: int) -> Numbers:
    """The middle like 2 % of noise, with tails that have no variance."""
    return 0.015 * rng.standard_t(1.5, rounds).clip(-60, 60)


def clocks(rng: np.random.Generator, rounds: int) -> Numbers:
    """A processor with two clocks 8 % apart, and 1 % of noise."""
    return 0.08 * rng.integers(0, 2, rounds) + rng.normal(0, 0.01, rounds)


def interrupted(rng: np.random.Generator, rounds: int) -> Numbers:
    """1 % of noise; one round in ten is interrupted and takes half as long again, or much longer."""
    return rng.normal(0, 0.01, rounds) + (rng.random(rounds) < 0.1) * rng.exponential(0.5, rounds)


NOISES: tuple[Noise, ...] = (normal, heavy, clocks, interrupted)


def table(rng: np.random.Generator, noise: Noise, rounds: int, quantities: int, slower: float = 0.0) -> Times:
    """Rounds of several quantities without a common cause; the second side of the first one is slower."""
    sides = MEAN_MS * np.exp(noise(rng, 2 * quantities * rounds)).reshape(quantities, 2, rounds)
    sides[0, 1] *= 1 + slower
    return {f"stage{k}": (before.tolist(), after.tolist()) for k, (before, after) in enumerate(sides)}


def all_at(limit: float, times: Mapping[str, object]) -> dict[str, float]:
    """The same limit for each quantity."""
    return dict.fromkeys(times, limit)


def look_at(times: Times, limits: Mapping[str, float], looks: Sequence[int]) -> list[Judgement]:
    """Judge pairs that were taken before as if they came one look after the other; the last look's verdicts."""
    judgements: list[Judgement] = []
    for look, upto in enumerate(looks, 1):
        so_far = {quantity: (before[:upto], after[:upto]) for quantity, (before, after) in times.items()}
        judgements = judge(so_far, limits, paired=True, look=look, looks=len(looks))
        if is_over(judgements):
            break
    return judgements


def alarms(judgements: list[Judgement]) -> bool:
    """Whether a table says that anything changed."""
    return any(one.pace in (Pace.SLOWER, Pace.FASTER) for one in judgements)


def at_most(share: float, found: int, trials: int) -> bool:
    """Whether this count is plausible where the true share is no higher; wrong once in ten thousand."""
    return bool(stats.binom.sf(found - 1, trials, share) > 1e-4)


def only(times: Times, limit: float = 0.05, *, paired: bool = True, **more: Any) -> Judgement:
    """Judge a table of one quantity."""
    (one,) = judge(times, all_at(limit, times), paired=paired, **more)
    return one
