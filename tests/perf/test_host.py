"""A slower host is told from a slower model: what its launches take is judged as if it had always been as fast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from pytest_dsocr.perf.against import judged
from pytest_dsocr.perf.host import busy_ms, follows, host_ratio, idle_share, is_another, of_runs, of_turns
from pytest_dsocr.perf.judgement import Pace
from pytest_dsocr.perf.rounds import Measured, Round
from pytest_dsocr.perf.words import host_told
from tests.perf.made import identity

EXACT = {"tokens.output": 11, "sam.busy_us": 18_000, "clip.busy_us": 4_000, "decode.busy_us": 2_000}
ROUNDS = 30


def run(
    hosts_ms: list[float], launches: Mapping[str, float], exact: Mapping[str, int] = EXACT, seed: int = 1
) -> Measured:
    """Rounds of a host that took ``hosts_ms`` for its small work, and ``launches`` times that for each quantity."""
    rng = np.random.default_rng(seed)
    rounds = tuple(
        Round(
            {
                name: busy_ms(exact, name) + by * host_ms * float(np.exp(rng.normal(0, 0.01)))
                for name, by in launches.items()
            },
            host_ms=dict.fromkeys(launches, host_ms),
        )
        for host_ms in hosts_ms
    )
    return Measured(identity(), exact, rounds)


LAUNCHES = {"sam": 3.0, "decode": 7.0, "postprocess": 0.03}
STEADY = [2.0] * ROUNDS


def paces(before: Measured, after: Measured) -> dict[str, Pace]:
    return {one.quantity: one.pace for one in judged(before, after, {}, 1, 1)}


@pytest.mark.parametrize("slower", [0.85, 1.1, 1.25])
def test_a_slower_host_is_no_slower_model(slower: float) -> None:
    before, after = run(STEADY, LAUNCHES), run([2 * slower] * ROUNDS, LAUNCHES, seed=2)
    assert host_ratio(before, after) == pytest.approx(slower)
    assert paces(before, after) == dict.fromkeys(LAUNCHES, Pace.SAME)


def test_a_slower_model_is_found_on_a_slower_and_on_a_faster_host() -> None:
    slower = {**LAUNCHES, "decode": 8.5}
    for host_ms in (1.8, 2.0, 2.2):
        found = paces(run(STEADY, LAUNCHES), run([host_ms] * ROUNDS, slower, seed=2))
        assert found == {"sam": Pace.SAME, "decode": Pace.SLOWER, "postprocess": Pace.SAME}, host_ms


def test_what_the_gpu_itself_does_is_never_taken_off() -> None:
    before, after = run(STEADY, {"sam": 3.0}), run([2.2] * ROUNDS, {"sam": 3.0}, {**EXACT, "sam.busy_us": 21_000}, 2)
    assert paces(before, after) == {"sam": Pace.SLOWER}
    _, times = of_runs(before, after, "sam")
    assert times[0] == pytest.approx(21 + 6, rel=0.02)


def test_a_host_that_wanders_hides_nothing() -> None:
    wandering = [2 * (1.3 if place // 5 % 2 else 1) for place in range(ROUNDS)]
    before = run(wandering, LAUNCHES)
    assert paces(before, run(wandering, LAUNCHES, seed=2)) == dict.fromkeys(LAUNCHES, Pace.SAME)
    assert paces(before, run(wandering, {**LAUNCHES, "decode": 8.5}, seed=2))["decode"] is Pace.SLOWER
    raw = [one.wall_ms["decode"] for one in before.rounds]
    assert np.std(of_turns(before.rounds, EXACT, "decode")) < np.std(raw) / 5


def test_each_quantity_has_the_pace_of_its_own_moment() -> None:
    """Beside a neighbour that comes and goes within a page, the mean over the page tells nothing of a stage."""
    moments = [{"sam": 2.0, "decode": 3.0} if place % 2 else {"sam": 3.0, "decode": 2.0} for place in range(ROUNDS)]
    rounds = [Round({name: 5 * ms for name, ms in one.items()}, host_ms=one) for one in moments]
    assert np.std(of_turns(rounds, {}, "decode")) == pytest.approx(0, abs=1e-9)


def test_what_needs_more_than_the_small_work_follows_by_more() -> None:
    slower = [2 * (1 + 0.02 * (place % 10)) for place in range(ROUNDS)]
    rounds = [Round({"decode": (by / 2) ** 1.3}, host_ms={"decode": by}) for by in slower]
    assert of_turns(rounds, {}, "decode") == pytest.approx([of_turns(rounds, {}, "decode")[0]] * ROUNDS)
    then = Measured(identity(), {}, tuple(Round({"decode": 1.0}, host_ms={"decode": 2.0}) for _ in slower))
    _, after = of_runs(then, Measured(identity(), {}, tuple(rounds)), "decode")
    assert after == pytest.approx([1.0] * ROUNDS)


def test_small_work_that_is_disturbed_by_itself_adds_no_noise() -> None:
    rng = np.random.default_rng(3)
    steady = [busy_ms(EXACT, "decode") + 14 * float(np.exp(rng.normal(0, 0.02))) for _ in range(ROUNDS)]
    hosts = 2 * np.exp(rng.normal(0, 0.2, ROUNDS))
    rounds = [Round({"decode": ms}, host_ms={"decode": host}) for ms, host in zip(steady, hosts, strict=True)]
    found = of_turns(rounds, EXACT, "decode")
    assert np.std(np.log(found)) < 1.1 * np.std(np.log(steady))


def test_how_far_times_follow_is_not_told_by_one_disturbed_round() -> None:
    slower = [1 + 0.01 * place for place in range(20)]
    assert follows(slower, slower) == pytest.approx(1)
    assert follows([*slower[:-1], 9.0], slower) == pytest.approx(1, abs=0.05)
    assert follows([by**1.25 for by in slower], slower) == pytest.approx(1.25)
    assert follows([1.0] * 20, slower) == 0
    assert follows([1 / by for by in slower], slower) == 0, "no time gets shorter where the host is slower"
    assert follows([1.0], [1.0]) == 0


def test_in_turn_a_side_that_slows_the_host_throughout_keeps_its_times() -> None:
    after = run([2.6] * ROUNDS, LAUNCHES)
    assert of_turns(after.rounds, EXACT, "decode") == [one.wall_ms["decode"] for one in after.rounds]


def test_a_host_of_another_pace_is_another_machine() -> None:
    before, after = run(STEADY, LAUNCHES), run([3.0] * ROUNDS, {**LAUNCHES, "decode": 20.0})
    found = judged(before, after, {}, 1, 1)
    assert {one.pace for one in found} == {Pace.AMBIGUOUS}
    assert found[0].reason.startswith("the host takes 1.50 times as long for the same small work")
    assert is_another(0.7)
    assert not is_another(1.3)


def test_where_the_host_was_not_timed_times_are_as_they_are() -> None:
    before = run(STEADY, LAUNCHES)
    bare = Measured(identity(), EXACT, tuple(Round(one.wall_ms) for one in run([2.2] * ROUNDS, LAUNCHES).rounds))
    assert host_ratio(before, bare) == 1
    assert of_runs(before, bare, "sam") == (before.wall_ms("sam"), bare.wall_ms("sam"))
    assert of_turns((), EXACT, "sam") == []


@pytest.mark.parametrize(
    ("quantity", "busy"),
    [("sam", 18), ("decode", 2), ("decode.late", 2), ("first_token", 22), ("page", 42), ("tokenizer", 0)],
)
def test_the_gpus_work_of_a_quantity(quantity: str, busy: float) -> None:
    assert busy_ms(EXACT, quantity) == busy
    assert busy_ms({}, quantity) == 0


def test_the_idle_share_is_what_the_gpu_leaves_of_the_wall() -> None:
    found = run(STEADY, LAUNCHES)
    assert idle_share(found) == pytest.approx(14 / 16, abs=0.01)
    assert idle_share(found, "sam") == pytest.approx(6 / 24, abs=0.01)
    assert idle_share(found, "prefill") is None
    assert idle_share(found, "postprocess") is None


def test_it_is_told_where_it_makes_a_difference() -> None:
    assert [*host_told(1.01)] == []
    [told] = host_told(1.07)
    assert told.startswith("the host took 1.07 times as long for the same small work as at the baseline")
