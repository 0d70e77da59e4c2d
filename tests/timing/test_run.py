"""A run compared with a baseline: measured until it is judged, and corrected for the pace of its host."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest

from pytest_dsocr.cost.roofline import Bound, Roof, devices
from pytest_dsocr.timing.baseline import Baseline
from pytest_dsocr.timing.counts import CountChange
from pytest_dsocr.timing.early import AGREEING
from pytest_dsocr.timing.host import busy_ms, host_ratio, idle_share, is_another, of_runs, of_turns, steady
from pytest_dsocr.timing.limits import LOOKS
from pytest_dsocr.timing.probe.page import PageProbe
from pytest_dsocr.timing.rounds import Measured, Round
from pytest_dsocr.timing.run import PerfRun, judge_run, measure
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.timing.made import PARITY, identity, measured

MEANS_MS = {"sam": 12.0, "prefill": 60.0, "first_token": 75.0, "decode": 15.0, "page": 1000.0}
THROTTLED = "the GPU was throttled (heat)"
MADE: dict[str, Any] = {"made": date(2026, 11, 22), "command": "pytest it", "commit": "cd" * 20}
COUNTS = measured({}, {"tokens.output": 64, "decode.kernels": 806})


class Planted(PageProbe):
    """A probe whose times are the means with noise.

    Args:
        noise: of the logarithm.
        slower: by quantity, as a factor.
        spoilt_every: every so many rounds one is spoilt, and takes ten times as long.
    """

    def __init__(self, noise: float = 0.01, slower: Mapping[str, float] = {}, spoilt_every: int = 0) -> None:
        self.rng, self.noise, self.slower = np.random.default_rng(7), noise, slower
        self.spoilt_every, self.taken, self.warm = spoilt_every, 0, False

    def warm_up(self) -> int:
        self.warm = True
        return 2

    def round(self, only: object = (), repeats: int = 2) -> dict[str, Any]:
        assert self.warm
        self.taken += 1
        spoilt = bool(self.spoilt_every) and self.taken % self.spoilt_every == 0
        factor = 10 if spoilt else 1
        times = {
            name: factor * mean * self.slower.get(name, 1) * float(np.exp(self.rng.normal(0, self.noise)))
            for name, mean in MEANS_MS.items()
        }
        return {"wall_ms": times, "conditions": {}, "spoilt": [THROTTLED] if spoilt else []}


def baseline(noise: float = 0.01) -> Baseline:
    rng = np.random.default_rng(8)
    times = {name: (mean * np.exp(rng.normal(0, noise, 24))).tolist() for name, mean in MEANS_MS.items()}
    return Baseline(**vars(measured(times, COUNTS.exact)), parity=PARITY, **MADE)


def against(probe: Planted, noise: float = 0.01, **how: Any) -> dict[str, Judgement]:
    """Judge a probe against the baseline; by quantity."""
    _, judgements = measure(probe, COUNTS, baseline(noise), how.pop("slower", {}), **how)
    return {one.quantity: one for one in judgements}


@pytest.mark.parametrize(
    ("slower", "options", "paces"),
    [
        ({}, {}, {}),
        ({"decode": 1.2}, {}, {"decode": TimingVerdict.SLOWER}),
        ({"prefill": 0.7}, {}, {"prefill": TimingVerdict.FASTER}),
        ({"decode": 1.2}, {"decode": 0.4}, {}),
    ],
)
def test_a_stage_that_changed_is_found_at_the_first_look_and_no_other(
    slower: dict[str, float], options: dict[str, float], paces: dict[str, TimingVerdict]
) -> None:
    probe = Planted(slower=slower)
    found = against(probe, slower=options)
    assert {name: one.pace for name, one in found.items()} == dict.fromkeys(MEANS_MS, TimingVerdict.SAME) | paces
    assert all(found[name].ratio == pytest.approx(by, abs=0.02) for name, by in slower.items())
    assert probe.taken == LOOKS[0]


def test_what_is_far_slower_throughout_shows_before_the_first_look() -> None:
    probe = Planted(slower=dict.fromkeys(MEANS_MS, 4.0))
    found = against(probe)
    assert ({one.pace for one in found.values()}, probe.taken) == ({TimingVerdict.SLOWER}, AGREEING)
    assert all(3 < one.low < one.ratio < one.high < 5 for one in found.values())


def test_more_rounds_are_taken_only_while_something_is_ambiguous() -> None:
    noise, slower = 0.05, {"page": 1.02}
    probe = Planted(noise, slower)
    found, judgements = measure(probe, COUNTS, baseline(0.02), {})
    assert (probe.taken, {one.pace for one in judgements}) == (LOOKS[1], {TimingVerdict.SAME})
    at_the_first = against(Planted(noise, slower), 0.02, most_rounds=LOOKS[0])
    assert TimingVerdict.AMBIGUOUS in {one.pace for one in at_the_first.values()}
    assert [*judgements] == judge_run(baseline(0.02), found, {}, look=2, looks=3)
    assert [*judgements] != judge_run(baseline(0.02), found, {}, look=1, looks=1), "each look has its alpha"


@pytest.mark.parametrize("most", [14, 48, 60])
def test_it_stops_at_the_bound(most: int) -> None:
    probe = Planted(slower={"decode": 1.05})
    found = against(probe, most_rounds=most)
    assert (probe.taken, found["decode"].pace) == (most, TimingVerdict.AMBIGUOUS)
    assert found["decode"].wanted > found["decode"].rounds


def test_spoilt_rounds_are_kept_and_not_used() -> None:
    found, judgements = measure(Planted(spoilt_every=3), COUNTS, baseline(), {})
    assert {one.pace for one in judgements} == {TimingVerdict.SAME}
    assert [one.spoilt for one in found.rounds[:3]] == [(), (), (THROTTLED,)]
    assert (len(found.good), len(found.rounds)) == (LOOKS[0], LOOKS[0] * 3 // 2 - 1)
    assert max(found.wall_ms("page")) < 1100
    found, judgements = measure(Planted(spoilt_every=1), COUNTS, baseline(), {})
    assert (found.good, judgements) == ((), ())


@pytest.mark.parametrize(("how", "rounds"), [({}, 8), ({"rounds_alone": 24}, 24), ({"most_rounds": 5}, 5)])
def test_without_a_baseline_there_are_a_few_rounds_and_no_verdict(how: dict[str, Any], rounds: int) -> None:
    calls: list[tuple[str, int, int]] = []
    found, judgements = measure(Planted(0.06), COUNTS, None, {}, on_round=lambda *call: calls.append(call), **how)
    assert (len(found.good), judgements) == (rounds, ())
    assert calls[0][:2] == ("warming up", 0)
    assert calls[1:] == [("rounds", k, rounds) for k in range(1, rounds)]


def test_a_run_is_written_as_json() -> None:
    counts = replace(COUNTS, exact={"tokens.output": 64, "decode.kernels": 900})
    bounds = {"sam": Bound(3.0, 3.0, 1.0), "prefill": Bound(1.2, 0.6, 1.2), "decode": Bound(0.3, 0.1, 0.3)}
    run = PerfRun(*measure(Planted(slower={"decode": 1.2}), counts, baseline(), {}), baseline())
    found = json.loads(json.dumps(run.to_json(), allow_nan=False))
    assert found["rounds"] == {"taken": 12, "used": 12}
    assert [*found["median_ms"]] == [*MEANS_MS]
    assert [one["pace"] for one in found["judgements"]] == ["SAME", "SAME", "SAME", "SLOWER", "SAME"]
    assert run.changes == [CountChange("decode.kernels", 806, 900)]
    assert found["baseline"] == {"made": "2026-11-22", "commit": "cd" * 20}
    assert (found["accepted"], found["roof"]) == (None, None)
    roof = replace(run, roof=Roof(devices()["h200"], "bfloat16", bounds)).to_json()["roof"]
    assert roof["prefill_in_steps"] == pytest.approx(4.0)
    assert [*roof["times"]] == ["sam", "prefill", "decode"]
    assert roof["times"]["sam"]["share"]["mfu"] == pytest.approx(3 / 12, rel=0.05)


EXACT = {"tokens.output": 11, "sam.busy_us": 18_000, "clip.busy_us": 4_000, "decode.busy_us": 2_000}
ROUNDS = 30
LAUNCHES = {"sam": 3.0, "decode": 7.0, "postprocess": 0.03}
STEADY = [2.0] * ROUNDS


def hosted(
    hosts_ms: list[float], launches: Mapping[str, float], exact: Mapping[str, int] = EXACT, seed: int = 1
) -> Measured:
    """Return rounds of a host that took ``hosts_ms`` for small work, and ``launches`` times that for each quantity."""
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


def paces(before: Measured, after: Measured) -> dict[str, TimingVerdict]:
    return {one.quantity: one.pace for one in judge_run(before, after, {}, 1, 1)}


@pytest.mark.parametrize("slower", [0.85, 1.1, 1.25])
def test_a_slower_host_is_no_slower_model(slower: float) -> None:
    before, after = hosted(STEADY, LAUNCHES), hosted([2 * slower] * ROUNDS, LAUNCHES, seed=2)
    assert host_ratio(before, after) == pytest.approx(slower)
    assert paces(before, after) == dict.fromkeys(LAUNCHES, TimingVerdict.SAME)
    if slower < 1.2:
        found = paces(before, hosted([2 * slower] * ROUNDS, {**LAUNCHES, "decode": 8.5}, seed=2))
        assert found == {"sam": TimingVerdict.SAME, "decode": TimingVerdict.SLOWER, "postprocess": TimingVerdict.SAME}


def test_what_the_gpu_itself_does_is_never_taken_off() -> None:
    before = hosted(STEADY, {"sam": 3.0})
    after = hosted([2.2] * ROUNDS, {"sam": 3.0}, {**EXACT, "sam.busy_us": 21_000}, 2)
    assert paces(before, after) == {"sam": TimingVerdict.SLOWER}
    assert of_runs(before, after, "sam")[1][0] == pytest.approx(21 + 6, rel=0.02)


def test_a_host_that_wanders_hides_nothing() -> None:
    wandering = [2 * (1.3 if k // 5 % 2 else 1) for k in range(ROUNDS)]
    before = hosted(wandering, LAUNCHES)
    assert paces(before, hosted(wandering, LAUNCHES, seed=2)) == dict.fromkeys(LAUNCHES, TimingVerdict.SAME)
    assert paces(before, hosted(wandering, {**LAUNCHES, "decode": 8.5}, seed=2))["decode"] is TimingVerdict.SLOWER
    assert np.std(of_turns(before.rounds, "decode")) < np.std(before.wall_ms("decode")) / 5


def test_in_turn_a_side_that_slows_the_host_throughout_keeps_its_times() -> None:
    after = hosted([2.6] * ROUNDS, LAUNCHES)
    assert of_turns(after.rounds, "decode") == after.wall_ms("decode")
    assert of_turns((), "sam") == []


def test_pairs_in_whose_turns_the_host_changed_are_left_out_and_one_side_that_slows_it_is_not() -> None:
    hosts_ms = [(2.0, 2.1), (1.3, 2.0), (1.4, 1.4), (2.0, 1.3), (1.3, 1.3)]
    pairs = [(Round({}, {"decode": a}), Round({}, {"decode": b})) for a, b in hosts_ms]
    assert steady(pairs, "decode") == [pairs[0], pairs[2], pairs[4]]
    throughout = [(Round({}, {"decode": a}), Round({}, {"decode": a * 1.5})) for a, _ in hosts_ms]
    assert steady(throughout, "decode") == throughout
    assert steady(pairs, "page") == pairs, "not timed"
    assert steady([pairs[1], pairs[3]], "decode") == [pairs[3]], "of two that are apart one is left"


def test_a_host_of_another_pace_is_another_machine() -> None:
    before, after = hosted(STEADY, LAUNCHES), hosted([3.0] * ROUNDS, {**LAUNCHES, "decode": 20.0})
    found = judge_run(before, after, {}, 1, 1)
    assert {one.pace for one in found} == {TimingVerdict.AMBIGUOUS}
    assert found[0].reason.startswith("the host takes 1.50 times as long for the same small work")
    assert (is_another(0.7), is_another(1.3)) == (True, False)


@pytest.mark.parametrize(
    ("quantity", "busy"),
    [("sam", 18), ("decode", 2), ("decode.late", 2), ("first_token", 22), ("page", 42), ("tokenizer", 0)],
)
def test_the_gpus_work_of_a_quantity_and_what_it_leaves_of_the_wall(quantity: str, busy: float) -> None:
    assert (busy_ms(EXACT, quantity), busy_ms({}, quantity)) == (busy, 0)
    shares = {"sam": pytest.approx(6 / 24, abs=0.01), "decode": pytest.approx(14 / 16, abs=0.01)}
    assert idle_share(hosted(STEADY, LAUNCHES), quantity) == shares.get(quantity)
