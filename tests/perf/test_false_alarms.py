"""How often the verdicts are right, on machines that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_dsocr.perf.judgement import Pace
from pytest_dsocr.perf.statistics import judge
from tests.perf.simulated import (
    NOISES,
    Noise,
    alarms,
    all_at,
    at_most,
    drifting,
    loaded,
    normal,
    only,
    ordered,
    table,
    wandering,
)

TABLES = 1000


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("noise", NOISES)
def test_false_alarms_are_as_rare_as_it_says(noise: Noise, paired: bool) -> None:
    """With nothing allowed, where alarms are likeliest."""
    rng = np.random.default_rng(1)
    drawn = (table(rng, noise, 16, 5) for _ in range(TABLES))
    found = sum(alarms(judge(one, all_at(0, one), paired=paired, alpha=0.05)) for one in drawn)
    assert at_most(0.05, found, TABLES)
    assert found >= 0.01 * TABLES, "not by never finding anything"


@pytest.mark.parametrize("noise", NOISES)
def test_what_is_slower_by_just_the_limit_is_neither_slower_nor_the_same(noise: Noise) -> None:
    rng = np.random.default_rng(3)
    drawn = [only(table(rng, noise, 24, 1, 0.05)) for _ in range(TABLES)]
    assert at_most(0.01, sum(one.pace is Pace.SLOWER for one in drawn), TABLES)
    assert at_most(0.01, sum(one.pace is Pace.SAME for one in drawn), TABLES)


def test_without_holm_there_are_more_false_alarms() -> None:
    rng = np.random.default_rng(4)
    drawn = [table(rng, normal, 16, 8) for _ in range(TABLES)]
    together = [judge(one, all_at(0, one), paired=True, alpha=0.05) for one in drawn]
    alone = [[only({name: sides}, 0, alpha=0.05) for name, sides in one.items()] for one in drawn]
    assert at_most(0.05, sum(map(alarms, together)), TABLES)
    assert not at_most(0.2, sum(map(alarms, alone)), TABLES)


@pytest.mark.parametrize(("slower", "limit", "rounds", "share"), [(0.10, 0.05, 24, 0.99), (0.05, 0.02, 48, 0.99)])
def test_a_slowdown_is_found_in_noise_of_two_per_cent(slower: float, limit: float, rounds: int, share: float) -> None:
    rng = np.random.default_rng(5)
    tables = [table(rng, normal, rounds, 10, slower) for _ in range(300)]
    for drawn in (tables, [{name: sides[::-1] for name, sides in one.items()} for one in tables]):
        paces = [[one.pace for one in judge(times, all_at(limit, times), paired=True)] for times in drawn]
        assert sum(first in (Pace.SLOWER, Pace.FASTER) for first, *_ in paces) >= share * len(paces)
        assert len({first for first, *_ in paces} - {Pace.AMBIGUOUS}) == 1
        others = [pace for _, *rest in paces for pace in rest]
        assert sum(pace is Pace.SAME for pace in others) >= 0.95 * len(others)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("noise", NOISES)
def test_the_interval_covers_what_was_planted(noise: Noise, paired: bool) -> None:
    rng = np.random.default_rng(6)
    drawn = [only(table(rng, noise, 16, 1, 0.1), paired=paired, alpha=0.05) for _ in range(TABLES)]
    missed = sum(not one.low <= 1.1 <= one.high for one in drawn)
    assert at_most(0.1, missed, TABLES), "one in twenty on each side"
    assert missed >= 0.03 * TABLES, "not by being too wide"


@pytest.mark.parametrize("noise", [drifting, loaded, wandering])
def test_interleaved_rounds_stand_what_misleads_runs_one_after_the_other(noise: Noise) -> None:
    rng = np.random.default_rng(7)
    wrong = {
        interleaved: sum(
            only(ordered(rng, noise, 24, slower, interleaved), paired=interleaved).pace not in right
            for slower, right in ((0.0, {Pace.SAME}), (0.1, {Pace.SLOWER}))
            for _ in range(100)
        )
        for interleaved in (True, False)
    }
    assert wrong[True] <= 6
    assert wrong[False] > wrong[True]
    assert wrong[False] >= 60 or noise is wandering


def test_what_processes_differ_by_is_no_alarm_once_it_is_known() -> None:
    """Each run is 5 % off in a way of its own, of which its rounds show nothing."""
    rng = np.random.default_rng(8)
    known = {"stage0": 0.05 * 2**0.5 * 0.6745}
    without = found = 0
    for _ in range(TABLES):
        (before, after), *_ = table(rng, normal, 24, 1, math.expm1(rng.normal(0, 0.05 * 2**0.5))).values()
        times = {"stage0": (before, after)}
        without += alarms([only(times, paired=False)])
        found += alarms([only(times, paired=False, spread=known)])
    assert at_most(0.01, found, TABLES)
    assert not at_most(0.2, without, TABLES)


@pytest.mark.parametrize(("slower", "limit"), [(0.0, 0.015), (0.01, 0.02), (0.035, 0.02)])
def test_the_number_of_rounds_that_it_wants_settles_it(slower: float, limit: float) -> None:
    rng = np.random.default_rng(10)
    asked = [only(table(rng, normal, 12, 1, slower), limit) for _ in range(200)]
    wanted = int(np.median([one.wanted for one in asked]))
    quarter, just, double = (
        sum(only(table(rng, normal, rounds, 1, slower), limit).settled for _ in range(100))
        for rounds in (wanted // 4, wanted, 2 * wanted)
    )
    assert quarter <= 30
    assert just >= 50
    assert double >= 90
