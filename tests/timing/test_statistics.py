"""Verdicts on times: p-values equal scipy's, and alarms are as rare as promised on simulated machines."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pytest_dsocr.timing.early import SHARE
from pytest_dsocr.timing.limits import LOOKS, is_over, limit_of, looks_at
from pytest_dsocr.timing.statistics import Judgement, Shifts, TimingVerdict, fewest_at, fewest_rounds, judge, level_of

# Rounds of machines that are known: noise of several shapes, drift, load, and a planted slowdown.

Numbers = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Numbers]
Times = dict[str, tuple[list[float], list[float]]]
MEAN_MS = 15.0


def normal(rng: np.random.Generator, rounds: int) -> Numbers:
    """Draw 2 % of lognormal noise."""
    return rng.normal(0, 0.02, rounds)


def heavy(rng: np.random.Generator, rounds: int) -> Numbers:
    """Draw noise with a middle like 2 % and with tails of infinite variance."""
    return 0.015 * rng.standard_t(1.5, rounds).clip(-60, 60)


def clocks(rng: np.random.Generator, rounds: int) -> Numbers:
    """Draw the noise of a processor with two clocks 8 % apart, and 1 % of noise."""
    return 0.08 * rng.integers(0, 2, rounds) + rng.normal(0, 0.01, rounds)


def interrupted(rng: np.random.Generator, rounds: int) -> Numbers:
    """Draw 1 % of noise, with one round in ten interrupted and much longer."""
    return rng.normal(0, 0.01, rounds) + (rng.random(rounds) < 0.1) * rng.exponential(0.5, rounds)


NOISES: tuple[Noise, ...] = (normal, heavy, clocks, interrupted)


def table(rng: np.random.Generator, noise: Noise, rounds: int, quantities: int, slower: float = 0.0) -> Times:
    """Draw independent rounds of several quantities; the first quantity is slower on the second side."""
    sides = MEAN_MS * np.exp(noise(rng, 2 * quantities * rounds)).reshape(quantities, 2, rounds)
    sides[0, 1] *= 1 + slower
    return {f"stage{k}": (before.tolist(), after.tolist()) for k, (before, after) in enumerate(sides)}


def all_at(limit: float, times: Mapping[str, object]) -> dict[str, float]:
    """Return one limit for all quantities."""
    return dict.fromkeys(times, limit)


def look_at(times: Times, limits: Mapping[str, float], looks: Sequence[int]) -> list[Judgement]:
    """Judge pairs look by look, and return the verdicts of the last look."""
    judgements: list[Judgement] = []
    for look, upto in enumerate(looks, 1):
        so_far = {quantity: (before[:upto], after[:upto]) for quantity, (before, after) in times.items()}
        judgements = judge(so_far, limits, paired=True, look=look, looks=len(looks))
        if is_over(judgements):
            break
    return judgements


def alarms(judgements: list[Judgement]) -> bool:
    """Return whether a table reports any change."""
    return any(one.pace in (TimingVerdict.SLOWER, TimingVerdict.FASTER) for one in judgements)


def at_most(share: float, found: int, trials: int) -> bool:
    """Return whether a count is plausible for a true share of at most ``share``, with an error of 1e-4."""
    return bool(stats.binom.sf(found - 1, trials, share) > 1e-4)


def only(times: Times, limit: float = 0.05, *, paired: bool = True, **more: Any) -> Judgement:
    """Judge a table of one quantity."""
    (one,) = judge(times, all_at(limit, times), paired=paired, **more)
    return one


TABLES = 300
MIRRORED = {TimingVerdict.SLOWER: TimingVerdict.FASTER, TimingVerdict.FASTER: TimingVerdict.SLOWER}
OPEN = {TimingVerdict.AMBIGUOUS, TimingVerdict.NOT_SLOWER}
"""Verdicts that swapping the sides may exchange."""
ROUNDS = st.lists(st.tuples(*[st.floats(0.5, 2)] * 2), min_size=1, max_size=16)
briefly = settings(max_examples=100)
both = pytest.mark.parametrize("paired", [True, False])


def of_rounds(rounds: list[tuple[float, float]]) -> Times:
    return {"decode": ([before for before, _ in rounds], [after for _, after in rounds])}


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (5, 7), (12, 12), (30, 48), (48, 48)])
def test_p_values_are_scipys(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes[0])
    before, after = rng.normal(size=sizes[0]), rng.normal(0.3, size=sizes[1])
    for paired in (True, False) if sizes[0] == sizes[1] else (False,):
        found = Shifts.between(np.exp(before).tolist(), np.exp(after).tolist(), paired)
        for shift in (-0.5, 0.0, 0.3, 2.0):
            for way, p_value in (("greater", found.p_above(shift)), ("less", found.p_below(shift))):
                if paired:
                    of = stats.wilcoxon(after - before - shift, alternative=way, method="exact")
                else:
                    of = stats.mannwhitneyu(after - shift, before, alternative=way, method="exact")
                assert p_value == pytest.approx(of.pvalue, rel=1e-9)


@both
def test_ties_count_against_the_finding(paired: bool) -> None:
    shifts = Shifts.between([1.0] * 12, [1.0] * 12, paired)
    assert shifts.p_above(0) == shifts.p_below(0) == pytest.approx(1)
    assert shifts.p_above(-0.1) == shifts.least_p
    assert shifts.interval(0.01) == (0, 0)


@both
@pytest.mark.parametrize("slower", [0.0, 0.4])
def test_too_few_rounds_tell_nothing(paired: bool, slower: float) -> None:
    rng = np.random.default_rng(11)
    fewest = fewest_rounds(6, 0.01, 3, paired)
    assert fewest == fewest_at(0.005 / 12, paired)
    for rounds in (1, 2, fewest - 1, fewest):
        drawn = table(rng, normal, rounds, 6).items()
        times = {name: (before, [time * (1 + slower) for time in before]) for name, (before, _) in drawn}
        found = judge(times, all_at(0.2, times), paired=paired, looks=3)
        few = ({TimingVerdict.AMBIGUOUS}, {fewest})
        enough = ({TimingVerdict.SLOWER if slower else TimingVerdict.SAME}, {rounds})
        assert ({one.pace for one in found}, {one.wanted for one in found}) == (few if rounds < fewest else enough)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        *(([1.0] * 12, [1.0] * 11 + [odd], "not every time is a number above zero") for odd in (0.0, -1.0, math.inf)),
        ([1.0] * 11 + [math.nan], [1.0] * 12, "not every time is a number above zero"),
        ([], [], "it has no rounds"),
        ([1.0] * 12, [], "it has no rounds"),
    ],
)
def test_times_that_are_none_are_not_compared_and_cost_the_others_nothing(
    before: list[float], after: list[float], reason: str
) -> None:
    times = table(np.random.default_rng(13), normal, 24, 2, 0.08)
    *others, odd = judge({**times, "odd": (before, after)}, {**all_at(0.05, times), "odd": 0.05}, paired=True)
    assert (odd.pace, odd.reason, odd.settled) == (TimingVerdict.NOT_COMPARED, reason, True)
    assert others == judge(times, all_at(0.05, times), paired=True)
    assert judge({}, {}, paired=True) == []


@briefly
@given(ROUNDS, st.booleans(), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([2.0**-20, 8.0, 1000.0]))
def test_swapped_sides_mirror_the_verdict_and_a_machine_of_another_speed_changes_nothing(
    rounds: list[tuple[float, float]], paired: bool, limit: float, by: float
) -> None:
    there = only(of_rounds(rounds), limit, paired=paired, alpha=0.2)
    back = only(of_rounds([(after * by, before * by) for before, after in rounds]), limit, paired=paired, alpha=0.2)
    assert back.pace is MIRRORED.get(there.pace, there.pace) or {back.pace, there.pace} <= OPEN
    assert (back.before_ms, back.after_ms) == pytest.approx((there.after_ms * by, there.before_ms * by))
    assert 1 / back.ratio == pytest.approx(there.ratio)
    if math.isfinite(there.high):
        assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))


@both
@pytest.mark.parametrize("noise", NOISES)
def test_false_alarms_are_as_rare_as_it_says_and_intervals_cover_what_was_planted(noise: Noise, paired: bool) -> None:
    """Allow no slowdown, which makes alarms most likely."""
    rng = np.random.default_rng(1)
    drawn = (table(rng, noise, 16, 5) for _ in range(TABLES))
    found = sum(alarms(judge(one, all_at(0, one), paired=paired, alpha=0.05)) for one in drawn)
    assert at_most(0.05, found, TABLES)
    assert found >= 0.01 * TABLES, "not by never finding anything"
    planted = (only(table(rng, noise, 16, 1, 0.1), paired=paired, alpha=0.05) for _ in range(TABLES))
    missed = sum(not one.low <= 1.1 <= one.high for one in planted)
    assert at_most(0.1, missed, TABLES), "one in twenty on each side"
    assert missed >= 0.03 * TABLES, "not by being too wide"


@pytest.mark.parametrize("noise", NOISES)
def test_what_is_slower_by_just_the_limit_is_neither_slower_nor_the_same(noise: Noise) -> None:
    rng = np.random.default_rng(3)
    for looks in ((24,), LOOKS):
        tables = (table(rng, noise, looks[-1], 1, 0.05) for _ in range(TABLES))
        drawn = [look_at(one, all_at(0.05, one), looks)[0].pace for one in tables]
        assert at_most(0.01, drawn.count(TimingVerdict.SLOWER), TABLES)
        assert at_most(0.01, drawn.count(TimingVerdict.SAME) + drawn.count(TimingVerdict.NOT_SLOWER), TABLES)


@both
@pytest.mark.parametrize("noise", NOISES)
def test_a_stage_that_got_a_little_faster_is_not_slower(noise: Noise, paired: bool) -> None:
    """Plant a speedup of exactly the limit, which is neither FASTER nor SAME."""
    rng, faster = np.random.default_rng(7), 1 / 1.05 - 1
    tables = [table(rng, noise, 48, 1, faster) for _ in range(TABLES // 3)]
    found = [only(times, paired=paired) for times in tables]
    assert [one.pace for one in found].count(TimingVerdict.NOT_SLOWER) >= 0.9 * len(tables)
    assert all(one.settled and one.high <= 1 + one.limit for one in found if one.pace is TimingVerdict.NOT_SLOWER)
    back = [only({name: sides[::-1] for name, sides in times.items()}, paired=paired).pace for times in tables]
    assert back.count(TimingVerdict.AMBIGUOUS) >= 0.9 * len(tables)


def test_the_first_look_can_find_something_and_all_looks_share_alpha() -> None:
    for quantities in (0, 1, 10, 40, 300):
        assert looks_at(quantities, 200)[1:] == (24, 48, 96, 192, 200)
        first, *others = looks_at(quantities)
        assert fewest_rounds(max(quantities, 1), 0.01, len(LOOKS), paired=True) <= first < others[0]
        assert (first % 2, others) == (0, [*LOOKS[1:]]), "whole blocks of ABBA"
    for looks in (1, 3):
        assert sum(level_of(0.01, look, looks) for look in range(1, looks + 1)) == pytest.approx((1 - SHARE) * 0.01)


@pytest.mark.parametrize(
    ("pairs", "ratios", "pace"),
    [
        (1, [99.0], TimingVerdict.AMBIGUOUS),
        (2, [2.8], TimingVerdict.SLOWER),
        (2, [0.35], TimingVerdict.FASTER),
        (2, [2.5], TimingVerdict.AMBIGUOUS),
        (3, [1.5], TimingVerdict.SLOWER),
        (4, [4 / 3], TimingVerdict.SLOWER),
        (4, [1.24], TimingVerdict.AMBIGUOUS),
        (8, [9.0, 1.2], TimingVerdict.AMBIGUOUS),
    ],
)
def test_a_handful_of_pairs_settles_what_is_far_in_each_of_them(
    pairs: int, ratios: list[float], pace: TimingVerdict
) -> None:
    times = {"page": ([10.0] * pairs, [10.0 * ratios[k % len(ratios)] for k in range(pairs)])}
    [found] = judge(times, {"page": 0.05}, paired=True, look=0, looks=3)
    assert found.pace is pace
    [found] = judge(times, {"page": 99.0}, paired=True, look=0, looks=3)
    assert found.pace is TimingVerdict.AMBIGUOUS, "a hundred times as slow is allowed"
    [found] = judge(times, {"page": 0.05}, paired=True, look=0, looks=3, margins={"page": 2.0})
    assert found.pace is TimingVerdict.AMBIGUOUS, "the host's speed may explain it"


def test_it_is_over_where_all_is_settled_or_more_rounds_would_settle_nothing() -> None:
    odd = Judgement.not_compared("clip", "it has no rounds")
    open_ = replace(odd, pace=TimingVerdict.AMBIGUOUS, reason="")
    tables: list[list[Judgement]] = [[], [open_, odd], [replace(open_, reason="nothing will"), odd]]
    assert [is_over(table) for table in tables] == [False, False, True]


def test_a_limit_is_the_most_specific_and_raised_for_what_hardly_matters() -> None:
    medians_ms = {"sam": 40.0, "decode": 15.0, "page": 2000.0}
    for quantity, options, limit in (
        ("page", {"*": 0.02, "page": 0.03}, 0.03),
        ("page", {"*": 0.02}, 0.02),
        ("sam", {}, 0.25),
        ("sam", {"sam": 0.3}, 0.3),
        ("decode", {}, 0.05),
    ):
        assert limit_of(quantity, options, medians_ms, 2000.0) == pytest.approx(limit)
    assert limit_of("sam", {}, medians_ms, math.nan) == 0.05, "without a time of the page"
