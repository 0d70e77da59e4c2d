"""Pairs of rounds on simulated machines: the real decision code, how soon it decides, and how rarely it is wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pytest_dsocr.timing.budget import TimeBudget
from pytest_dsocr.timing.early import DISTURBED, SHARE, of_pairs
from pytest_dsocr.timing.outlook import least_slowdown, outlook, pairs_that_fit
from pytest_dsocr.timing.pairs import PairedRounds, groups_of
from pytest_dsocr.timing.rounds import LATE, PAGE
from pytest_dsocr.timing.statistics import ALPHA, TimingVerdict, judge
from tests.timing.test_statistics import NOISES, Noise, alarms, all_at, at_most, interrupted, normal, table

MEANS_MS = {"sam": 110.0, "prefill": 120.0, "first_token": 230.0, "decode": 15.0, LATE: 16.0, PAGE: 1000.0}
STEPS = 24
GROUPS = groups_of(STEPS)


class Clock:
    """A clock that rounds move on."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Side:
    """A side that takes no time, and says that it took the means with noise.

    Args:
        rng: source of the noise.
        noise: of the logarithm.
        slower: by quantity, as a factor.
        clock: moved on by what each round took.
        spoilt: whether each round is.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        noise: Noise = normal,
        slower: Mapping[str, float] = {},
        clock: Clock | None = None,
        spoilt: bool = False,
    ) -> None:
        self.rng, self.noise, self.slower, self.clock, self.spoilt = rng, noise, slower, clock or Clock(), spoilt
        self.asked: list[tuple[Sequence[str], int]] = []

    def ask(self, what: str, only: Sequence[str], repeats: int) -> dict[str, Any]:
        assert what == "round"
        self.asked.append((only, repeats))
        noise = dict(zip(MEANS_MS, np.exp(self.noise(self.rng, len(MEANS_MS))), strict=True))
        times = {k: ms * self.slower.get(k, 1) * float(noise[k]) for k, ms in MEANS_MS.items() if k in only}
        self.clock.now_s += repeats * (times.get("first_token", 60) + STEPS * 15 + times.get(PAGE, 0)) / 1e3
        return {"wall_ms": times, "host_ms": dict.fromkeys(times, 2.0), "spoilt": ["a busy core"] * self.spoilt}


def pairs_of(a: Side, b: Side, seconds: float = np.inf, **how: Any) -> PairedRounds:
    return PairedRounds([a, b], GROUPS, TimeBudget(seconds, a.clock), lambda what, done, total: None, **how)  # type: ignore[list-item]


def settled(
    noise: Noise = normal, slower: Mapping[str, float] = {}, *, seed: int = 1, **how: Any
) -> tuple[PairedRounds, str]:
    rng, clock = np.random.default_rng(seed), Clock()
    pairs = pairs_of(Side(rng, noise, clock=clock), Side(rng, noise, slower, clock), **how)
    return pairs, pairs.settle()


def paces(pairs: PairedRounds) -> dict[str, TimingVerdict]:
    return {one.quantity: one.pace for one in pairs.judgements}


def numbers(pairs: PairedRounds) -> list[int]:
    """Return the number of pairs of the start, and of the whole page."""
    return [len(pairs.taken[group]) for group in GROUPS]


SAME, SLOWER, FASTER = TimingVerdict.SAME, TimingVerdict.SLOWER, TimingVerdict.FASTER


@pytest.mark.parametrize("tests", [2, 12, 28, 80])
def test_the_chances_of_an_early_false_alarm_add_up_to_their_share(tests: int) -> None:
    bounds = ((DISTURBED / np.exp(2 * of_pairs(pairs, tests, ALPHA))) ** pairs for pairs in range(2, 200))
    assert tests * sum(bounds) <= SHARE * ALPHA
    assert of_pairs(1, tests, ALPHA) == np.inf


@pytest.mark.parametrize("noise", NOISES)
def test_a_side_against_itself_is_never_told_apart_early_more_often_than_stated(noise: Noise) -> None:
    """Allow no slow-down, and let early verdicts err in 2 % of all tables, so that errors are frequent enough."""
    alpha, tables, rng = 0.2, 250, np.random.default_rng(2)
    found = 0
    for times in (table(rng, noise, 5, 10) for _ in range(tables)):
        looks = ({name: (a[:n], b[:n]) for name, (a, b) in times.items()} for n in range(2, 6))
        found += any(alarms(judge(one, all_at(0, one), paired=True, alpha=alpha, look=0)) for one in looks)
    assert at_most(SHARE * alpha, found, tables)
    assert found or noise is not interrupted, "not by never finding anything: this noise is as strong as is allowed for"


@pytest.mark.dsocr_slow
@pytest.mark.parametrize("noise", NOISES)
def test_a_side_against_itself_is_told_apart_no_more_often_than_stated(noise: Noise) -> None:
    runs = 150
    found = sum(alarms([*settled(noise, seed=seed, most_rounds=14)[0].judgements]) for seed in range(runs))
    assert at_most(ALPHA, found, runs)


@pytest.mark.parametrize(("by", "most"), [(20.0, 2), (0.05, 2), (2.6, 3), (1.34, 5), (0.7, 5)])
def test_what_is_far_apart_is_told_after_few_pairs(by: float, most: int) -> None:
    """With 2 % of noise on both sides a pair in seventy misses the distance that a third has to have."""
    found = [one for seed in range(6) for one in settled(slower=dict.fromkeys(MEANS_MS, by), seed=seed)[0].judgements]
    assert {one.pace for one in found} == {SLOWER if by > 1 else FASTER}
    early = [one.rounds <= most for one in found]
    assert np.mean(early) >= (1 if most < 4 else 0.8)


def test_a_stage_that_is_a_third_slower_is_told_before_the_whole_page_is_read_often() -> None:
    pairs, short = settled(slower={"prefill": 1.34}, seconds=30)
    assert paces(pairs)["prefill"] is SLOWER
    assert {pace for name, pace in paces(pairs).items() if name != "prefill"} <= {SAME, TimingVerdict.AMBIGUOUS}
    prefill = [pair for pair in pairs.all if "prefill" in pair[0].wall_ms]
    assert len(prefill) <= 6 < numbers(pairs)[0], "it is left out of later pairs"
    assert numbers(pairs)[1] < numbers(pairs)[0]
    assert short.startswith("the 30 s of --seconds were over after")


def test_rounds_are_in_turn_quick_ones_repeat_their_stages_and_the_first_pairs_do_not() -> None:
    sides = Side(np.random.default_rng(1)), Side(np.random.default_rng(2))
    pairs = pairs_of(*sides, stages=["prefill"], most_rounds=4)
    assert [side.asked for side in sides] == [[(["prefill"], 1), ([PAGE], 1)]] * 2, "limits depend on the page"
    assert pairs.settle() == f"fewer than {pairs.fewest} pairs tell only large differences"
    assert [side.asked[2:] for side in sides] == [[(["prefill"], 1)] * 3] * 2


def test_no_pair_is_started_that_would_not_end_in_time_and_none_in_the_time_that_is_kept() -> None:
    rng, clock = np.random.default_rng(1), Clock()
    pairs = pairs_of(Side(rng, clock=clock), Side(rng, clock=clock), 20.0)
    pairs.budget.reserved_s = 5.0
    fit = pairs_that_fit(pairs.took_s, pairs.looks, pairs.budget.for_rounds_s)
    assert "the 20 s of --seconds were over after" in pairs.settle()
    assert 13 < clock.now_s <= 15
    assert numbers(pairs) == [fit[group] for group in GROUPS]
    assert {*paces(pairs).values()} == {TimingVerdict.AMBIGUOUS}, "too few to tell that nothing changed"


def test_rounds_that_are_spoilt_end_and_judge_nothing() -> None:
    rng = np.random.default_rng(1)
    pairs = pairs_of(Side(rng), Side(rng, spoilt=True), most_rounds=6)
    pairs.settle()
    assert (numbers(pairs), [*pairs.judgements]) == ([12, 12], [])


def test_a_burst_that_slows_the_host_for_one_side_is_no_early_difference() -> None:
    """ABBA: both rounds of B in the middle are hit."""
    rng = np.random.default_rng(1)
    sides = Side(rng), Side(rng, slower=dict.fromkeys(MEANS_MS, 6.0))
    ask = sides[1].ask
    sides[1].ask = lambda *how, **more: {  # type: ignore[method-assign]
        **(found := ask(*how, **more)),
        "host_ms": dict.fromkeys(found["wall_ms"], 12.0),
    }
    pairs = pairs_of(*sides, most_rounds=2)
    pairs.settle()
    assert {*paces(pairs).values()} == {TimingVerdict.AMBIGUOUS}


@pytest.mark.parametrize("pairs", [2, 3, 5, 9])
def test_the_forecast_names_the_least_slowdown_that_is_told(pairs: int) -> None:
    least = least_slowdown(pairs, 3, 3, 0.05)
    for by, pace in ((1.02, SLOWER), (0.98, TimingVerdict.AMBIGUOUS)):
        times = {name: ([10.0] * pairs, [10 * by * (1 + least)] * pairs) for name in ("sam", "decode", PAGE)}
        assert {one.pace for one in judge(times, all_at(0.05, times), paired=True, look=0, looks=3)} == {pace}


def test_the_forecast_is_of_the_time_that_is_left() -> None:
    rng, clock = np.random.default_rng(1), Clock()
    pairs = pairs_of(Side(rng, clock=clock), Side(rng, clock=clock), 8.0)
    assert outlook(pairs) == (
        "time for 4 pairs of the stages and first steps (a slow-down of 39% can be told, SAME needs 12), "
        "1 pair of the whole page (too few to tell anything, SAME needs 12)"
    )
    noisy = least_slowdown(14, 6, 3, 0.05), least_slowdown(48, 6, 3, 0.05)
    assert noisy == pytest.approx((0.069, 0.06), abs=0.002)
