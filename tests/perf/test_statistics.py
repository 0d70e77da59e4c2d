from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsocr.perf.judgement import Pace
from pytest_dsocr.perf.statistics import MOST_ROUNDS, fewest_rounds, holm, judge, level_of
from tests.perf.simulated import (
    Times,
    all_at,
    normal,
    only,
    table,
)

TABLES = 1000
MIRRORED = {Pace.SLOWER: Pace.FASTER, Pace.FASTER: Pace.SLOWER}

ROUNDS = st.lists(st.tuples(*[st.floats(0.5, 2)] * 2), min_size=1, max_size=16)
briefly = settings(max_examples=100, database=None)


def of_rounds(rounds: list[tuple[float, float]]) -> Times:
    return {"decode": ([before for before, _ in rounds], [after for _, after in rounds])}


def test_holm_asks_less_of_each_further_finding() -> None:
    assert [*holm({"a": 0.02, "b": 0.04, "c": 0.001}, 0.05)] == ["c", "a", "b"]
    assert [*holm({"a": 0.026, "b": 0.04, "c": 0.001}, 0.05)] == ["c"]
    assert not [*holm({}, 0.05)]


def test_looks_share_what_may_go_wrong() -> None:
    for looks in (1, 2, 3, 6):
        assert sum(level_of(0.01, look, looks) for look in range(1, looks + 1)) == pytest.approx(0.01)


def test_what_more_rounds_would_not_settle_says_so() -> None:
    times = table(np.random.default_rng(9), normal, 24, 1)
    one = only(times, paired=False, spread={"stage0": 0.02})
    assert (one.pace, one.wanted) == (Pace.AMBIGUOUS, MOST_ROUNDS)
    assert one.reason == "processes of the same thing differ by as much; more rounds do not settle it"
    narrow = only(times, paired=False)
    assert (one.low, one.high) == pytest.approx((narrow.low / 1.02**4, narrow.high * 1.02**4))
    assert narrow.pace is Pace.SAME


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("slower", [0.0, 0.5])
def test_too_few_rounds_tell_nothing(paired: bool, slower: float) -> None:
    rng = np.random.default_rng(11)
    fewest = fewest_rounds(6, 0.01, 3, paired)
    for rounds in (1, 2, fewest - 1, fewest):
        times = {
            name: (before, [time * (1 + slower) for time in before])
            for name, (before, _) in table(rng, normal, rounds, 6).items()
        }
        paces = {one.pace for one in judge(times, all_at(0.2, times), paired=paired, looks=3)}
        wanted = {one.wanted for one in judge(times, all_at(0.2, times), paired=paired, looks=3)}
        if rounds < fewest:
            assert paces == {Pace.AMBIGUOUS}
            assert wanted == {fewest}
        else:
            assert paces == {Pace.SLOWER if slower else Pace.SAME}


@pytest.mark.parametrize("paired", [True, False])
def test_identical_times_have_an_answer(paired: bool) -> None:
    for after, pace in (
        (1.0, Pace.SAME),
        (1.05, Pace.SAME),
        (1 / 1.05, Pace.SAME),
        (1.06, Pace.SLOWER),
        (0.94, Pace.FASTER),
    ):
        one = only({"sleep": ([1.0] * 12, [after] * 12)}, paired=paired)
        assert one.pace is pace
        assert (one.ratio, one.low, one.high) == pytest.approx((after, after, after))
        assert (one.before_ms, one.after_ms, one.rounds, one.wanted) == (1, after, 12, 12)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([1.0] * 12, [1.0] * 11 + [0.0], "not every time is a number above zero"),
        ([1.0] * 11 + [math.nan], [1.0] * 12, "not every time is a number above zero"),
        ([1.0] * 11 + [math.inf], [1.0] * 12, "not every time is a number above zero"),
        ([1.0] * 11 + [-1.0], [1.0] * 12, "not every time is a number above zero"),
        ([], [], "it has no rounds"),
        ([1.0] * 12, [], "it has no rounds"),
        ([1.0] * 12, [1.0] * 11, "its rounds are no pairs: 12 and 11"),
    ],
)
def test_times_that_are_none_are_not_compared(before: list[float], after: list[float], reason: str) -> None:
    good = [1.0] * 12
    odd, other = judge({"odd": (before, after), "sam": (good, good)}, {"odd": 0.05, "sam": 0.05}, paired=True)
    assert (odd.pace, odd.reason, odd.settled) == (Pace.NOT_COMPARED, reason, True)
    assert other.pace is Pace.SAME


def test_a_table_without_quantities_has_no_judgements() -> None:
    assert judge({}, {}, paired=True) == []


def test_runs_of_different_length_can_be_compared() -> None:
    before, after = table(np.random.default_rng(12), normal, 40, 1, 0.2)["stage0"]
    one = only({"sam": (before, after[:12])}, paired=False)
    assert (one.pace, one.rounds) == (Pace.SLOWER, 12)


@briefly
@given(ROUNDS, st.booleans(), st.sampled_from([0.0, 0.05, 0.3]))
def test_swapped_sides_mirror_the_verdict(rounds: list[tuple[float, float]], paired: bool, limit: float) -> None:
    there = only(of_rounds(rounds), limit, paired=paired, alpha=0.2)
    back = only(of_rounds([(after, before) for before, after in rounds]), limit, paired=paired, alpha=0.2)
    assert back.pace is MIRRORED.get(there.pace, there.pace)
    assert (back.before_ms, back.after_ms) == (there.after_ms, there.before_ms)
    assert back.wanted == there.wanted
    assert 1 / back.ratio == pytest.approx(there.ratio)
    if math.isfinite(there.high):
        assert (1 / back.high, 1 / back.low) == pytest.approx((there.low, there.high))


@briefly
@given(ROUNDS, st.booleans(), st.sampled_from([2.0**-20, 8.0, 1000.0]))
def test_a_machine_of_another_speed_changes_nothing(rounds: list[tuple[float, float]], paired: bool, by: float) -> None:
    here = only(of_rounds(rounds), paired=paired, alpha=0.2)
    there = only(of_rounds([(before * by, after * by) for before, after in rounds]), paired=paired, alpha=0.2)
    assert there.pace is here.pace
    assert (there.ratio, there.low, there.high) == pytest.approx((here.ratio, here.low, here.high))


@briefly
@given(ROUNDS.flatmap(lambda rounds: st.tuples(st.just(rounds), st.permutations(rounds))), st.booleans())
def test_the_order_of_rounds_does_not_matter(
    rounds: tuple[list[tuple[float, float]], list[tuple[float, float]]], paired: bool
) -> None:
    here, there = (only(of_rounds(one), paired=paired, alpha=0.2) for one in rounds)
    assert here == there


@briefly
@given(ROUNDS, st.booleans())
def test_it_is_one_verdict_and_its_interval_says_the_same(rounds: list[tuple[float, float]], paired: bool) -> None:
    one = only(of_rounds(rounds), paired=paired, alpha=0.2)
    assert one.low <= one.ratio <= one.high
    assert (one.pace is Pace.SLOWER) <= (one.low > 1.05)
    assert (one.pace is Pace.FASTER) <= (one.high < 1 / 1.05)
    assert (one.pace is Pace.SAME) <= (one.low >= 1 / 1.05 - 1e-6 and one.high <= 1.05 + 1e-6)
    assert (one.wanted > one.rounds) is (one.pace is Pace.AMBIGUOUS)


def test_a_quantity_that_is_not_compared_costs_the_others_nothing() -> None:
    times = table(np.random.default_rng(13), normal, 24, 2, 0.08)
    alone = judge(times, all_at(0.05, times), paired=True)
    with_it = judge({**times, "odd": ([0.0], [0.0])}, {**all_at(0.05, times), "odd": 0.05}, paired=True)
    assert with_it[:2] == alone
    assert replace(with_it[2], reason="").pace is Pace.NOT_COMPARED
