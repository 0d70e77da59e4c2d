from __future__ import annotations

import numpy as np
import pytest

from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.schedule import LOOKS, look_at, looks_for, next_rounds, order
from pytest_dsocr.perf.statistics import fewest_rounds, judge
from tests.perf.simulated import alarms, all_at, at_most, normal, table

TABLES = 1000


def judged(pace: Pace, reason: str = "") -> Judgement:
    return Judgement("sam", pace, 1.0, 1.0, 1.0, 1.0, 1.0, 0.05, 12, 12, reason)


def test_rounds_are_taken_up_to_the_next_look_only_while_something_is_ambiguous() -> None:
    open_, same = judged(Pace.AMBIGUOUS), judged(Pace.SAME)
    assert next_rounds([], 0) == 12
    assert next_rounds([], 9) == 3, "three pairs were spoilt"
    assert next_rounds([same, open_], 12) == 12
    assert next_rounds([same, open_], 24) == 24
    assert next_rounds([same, open_], 48) == 0
    assert next_rounds([same, judged(Pace.SLOWER), judged(Pace.NOT_COMPARED)], 12) == 0
    assert next_rounds([judged(Pace.AMBIGUOUS, "processes differ by as much")], 12) == 0


@pytest.mark.parametrize("quantities", [0, 1, 10, 11, 40, 300])
def test_the_first_look_can_find_something(quantities: int) -> None:
    first, *others = looks_for(quantities)
    assert first >= fewest_rounds(max(quantities, 1), 0.01, len(LOOKS), paired=True)
    assert first % 2 == 0, "whole blocks of ABBA"
    assert LOOKS[0] <= first < others[0]
    assert others == [*LOOKS[1:]]


@pytest.mark.parametrize("pairs", [2, 12, 14, 48])
def test_neither_side_gains_by_steady_drift(pairs: int) -> None:
    turns = [side for pair in range(pairs) for side in order(pair)]
    assert turns[:4] == [0, 1, 1, 0]
    assert sum(place for place, side in enumerate(turns) if side) * 2 == sum(range(2 * pairs))


def test_looks_do_not_add_false_alarms() -> None:
    """Even if the first look with an alarm ends it; with the whole of alpha at each look there are more."""
    rng = np.random.default_rng(1)
    drawn = [table(rng, normal, 48, 2) for _ in range(TABLES)]

    def ever(looks: int) -> int:
        cuts = [[{name: (a[:pairs], b[:pairs]) for name, (a, b) in one.items()} for pairs in LOOKS] for one in drawn]
        return sum(
            any(
                alarms(judge(cut, all_at(0, cut), paired=True, alpha=0.05, look=min(look, looks), looks=looks))
                for look, cut in enumerate(one, 1)
            )
            for one in cuts
        )

    assert at_most(0.05, ever(3), TABLES)
    assert not at_most(0.06, ever(1), TABLES)


def test_what_is_slower_by_just_the_limit_is_rarely_called_slower_or_the_same() -> None:
    rng = np.random.default_rng(2)
    drawn = [look_at(one, all_at(0.05, one), LOOKS) for one in (table(rng, normal, 48, 2, 0.05) for _ in range(TABLES))]
    assert at_most(0.01, sum(alarms(one) for one in drawn), TABLES)
    assert at_most(0.01, sum(one[0].pace is Pace.SAME for one in drawn), TABLES)


@pytest.mark.parametrize(("slower", "taken"), [(0.0, 12), (0.5, 12), (0.05, 48)])
def test_it_ends_with_the_look_that_settles_it(slower: float, taken: int) -> None:
    rng, rounds = np.random.default_rng(3), []
    for times in (table(rng, normal, 48, 1, slower) for _ in range(40)):
        (one,) = look_at(times, {"stage0": 0.05}, LOOKS)
        before, after = times["stage0"]
        look = LOOKS.index(one.rounds) + 1
        cut = {"stage0": (before[: one.rounds], after[: one.rounds])}
        assert [one] == judge(cut, {"stage0": 0.05}, paired=True, look=look, looks=3)
        rounds.append(one.rounds)
    assert rounds.count(taken) >= 36


def test_what_processes_differ_by_goes_into_every_look() -> None:
    times = table(np.random.default_rng(4), normal, 48, 1, 0.2)
    (sure,), (unsure,) = (look_at(times, {"stage0": 0.05}, LOOKS, spread={"stage0": by}) for by in (0.0, 0.1))
    assert (sure.pace, unsure.pace) == (Pace.SLOWER, Pace.AMBIGUOUS)
    assert unsure.rounds == 12, "more would not settle it"
