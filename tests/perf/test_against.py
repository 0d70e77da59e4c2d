"""A run held against a baseline: measured until it is judged, on rounds from distributions that are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import Bound, devices
from pytest_dsocr.perf.against import PerfRun, judged, measure
from pytest_dsocr.perf.baseline import Baseline
from pytest_dsocr.perf.changes import Change
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.schedule import LOOKS
from tests.perf.made import PARITY, measured

MEANS_MS = {"sam": 12.0, "prefill": 60.0, "first_token": 75.0, "decode": 15.0, "page": 1000.0}
COUNTS = measured({}, {"tokens.output": 64, "decode.kernels": 806})
THROTTLED = "the GPU was throttled (heat)"


class Planted:
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

    def round(self) -> dict[str, Any]:
        assert self.warm
        self.taken += 1
        spoilt = bool(self.spoilt_every) and self.taken % self.spoilt_every == 0
        factor = 10 if spoilt else 1
        times = {
            name: factor * mean * self.slower.get(name, 1) * float(np.exp(self.rng.normal(0, self.noise)))
            for name, mean in MEANS_MS.items()
        }
        return {"wall_ms": times, "stream_ms": {}, "conditions": {}, "spoilt": [THROTTLED] if spoilt else []}


def baseline(noise: float = 0.01) -> Baseline:
    rng = np.random.default_rng(8)
    times = {name: (mean * np.exp(rng.normal(0, noise, 24))).tolist() for name, mean in MEANS_MS.items()}
    return Baseline(measured(times, COUNTS.exact), PARITY, "2026-11-22", "pytest it", "cd" * 20)


def against(probe: Planted, noise: float = 0.01, **how: Any) -> dict[str, Judgement]:
    """Judge a probe against the baseline; by quantity."""
    _, judgements = measure(probe, COUNTS, baseline(noise), how.pop("slower", {}), **how)
    return {one.quantity: one for one in judgements}


def test_what_is_the_same_is_settled_at_the_first_look() -> None:
    probe = Planted()
    assert {name: one.pace for name, one in against(probe).items()} == dict.fromkeys(MEANS_MS, Pace.SAME)
    assert probe.taken == LOOKS[0]


def test_a_slower_stage_is_found_and_no_other() -> None:
    probe = Planted(slower={"decode": 1.2})
    found = against(probe)
    assert [name for name, one in found.items() if one.pace is Pace.SLOWER] == ["decode"]
    assert found["decode"].ratio == pytest.approx(1.2, abs=0.02)
    assert probe.taken == LOOKS[0]


def test_a_faster_one_as_well() -> None:
    assert against(Planted(slower={"prefill": 0.7}))["prefill"].pace is Pace.FASTER


def test_more_rounds_are_taken_only_while_something_is_ambiguous() -> None:
    probe = Planted(0.055)
    found = against(probe, 0.02)
    assert probe.taken == LOOKS[1]
    assert {one.pace for one in found.values()} == {Pace.SAME}
    at_the_first = against(Planted(0.055), 0.02, most_rounds=LOOKS[0])
    assert Pace.AMBIGUOUS in {one.pace for one in at_the_first.values()}


@pytest.mark.parametrize("most", [14, 48, 60])
def test_it_stops_at_the_bound(most: int) -> None:
    probe = Planted(slower={"decode": 1.05})
    found = against(probe, most_rounds=most)
    assert (probe.taken, found["decode"].pace) == (most, Pace.AMBIGUOUS)
    assert found["decode"].wanted > found["decode"].rounds


def test_each_look_has_its_part_of_the_false_alarms() -> None:
    found, judgements = measure(Planted(0.055), COUNTS, baseline(0.02), {})
    assert [*judgements] == judged(baseline(0.02).measured, found, {}, look=2, looks=3)
    assert [*judgements] != judged(baseline(0.02).measured, found, {}, look=1, looks=1)


def test_limits_are_those_of_the_run() -> None:
    assert against(Planted(slower={"decode": 1.2}), slower={"decode": 0.4})["decode"].pace is Pace.SAME
    assert against(Planted(slower={"page": 1.04}), slower={"*": 0.01})["page"].pace is Pace.SLOWER


def test_spoilt_rounds_are_kept_and_not_used() -> None:
    probe = Planted(spoilt_every=3)
    found, judgements = measure(probe, COUNTS, baseline(), {})
    assert {one.pace for one in judgements} == {Pace.SAME}
    assert [one.spoilt for one in found.rounds[:3]] == [(), (), (THROTTLED,)]
    assert (len(found.good), len(found.rounds)) == (LOOKS[0], LOOKS[0] * 3 // 2 - 1)
    assert max(found.wall_ms("page")) < 1100


def test_without_a_good_round_nothing_is_judged() -> None:
    found, judgements = measure(Planted(spoilt_every=1), COUNTS, baseline(), {})
    assert (found.good, judgements) == ((), ())


def test_what_only_one_side_has_is_not_judged() -> None:
    made = baseline()
    rounds = [
        replace(one, wall_ms={name: value for name, value in one.wall_ms.items() if name != "sam"})
        for one in made.measured.rounds
    ]
    lacking = replace(made, measured=replace(made.measured, rounds=tuple(rounds)))
    found, judgements = measure(Planted(), COUNTS, lacking, {})
    assert [one.quantity for one in judgements] == ["prefill", "first_token", "decode", "page"]
    assert PerfRun(found, judgements, lacking).judgement("sam") is None


@pytest.mark.parametrize(("how", "rounds"), [({}, 8), ({"rounds_alone": 24}, 24), ({"most_rounds": 5}, 5)])
def test_without_a_baseline_there_are_a_few_rounds_and_no_verdict(how: dict[str, Any], rounds: int) -> None:
    probe = Planted(0.06)
    found, judgements = measure(probe, COUNTS, None, {}, **how)
    assert (len(found.good), probe.taken, judgements) == (rounds, rounds, ())


def test_it_tells_how_far_it_is() -> None:
    told: list[tuple[str, int, int]] = []
    measure(Planted(), COUNTS, baseline(), {}, on_round=lambda *one: told.append(one))
    assert told == [("warming up", 0, 48), *(("rounds", k, 48) for k in range(2, 13))]


def test_a_run_is_told_as_json() -> None:
    counts = replace(COUNTS, exact={"tokens.output": 64, "decode.kernels": 900})
    run = PerfRun(*measure(Planted(slower={"decode": 1.2}), counts, baseline(), {}), baseline())
    found = json.loads(json.dumps(run.to_json(), allow_nan=False))
    assert found["rounds"] == {"taken": 12, "used": 12}
    assert [*found["median_ms"]] == [*MEANS_MS]
    assert [one["pace"] for one in found["judgements"]] == ["SAME", "SAME", "SAME", "SLOWER", "SAME"]
    assert run.changes == [Change("decode.kernels", 806, 900)]
    assert found["changes"] == ["decode.kernels: A 806, B 900, which is worse"]
    assert found["baseline"] == {"made": "2026-11-22", "commit": "cd" * 20}
    assert found["accepted"] is None


def test_a_run_under_a_roof_tells_it_as_json() -> None:
    bounds = {"sam": Bound(3.0, 3.0, 1.0), "prefill": Bound(1.2, 0.6, 1.2), "decode": Bound(0.3, 0.1, 0.3)}
    roof = Roof(devices()["h200"], "bfloat16", bounds)
    measured, judgements = measure(Planted(), COUNTS, baseline(), {})
    found = json.loads(json.dumps(PerfRun(measured, judgements, baseline(), roof=roof).to_json()))
    assert found["roof"]["prefill_in_steps"] == pytest.approx(4.0)
    assert [*found["roof"]["times"]] == ["sam", "prefill", "decode"]
    assert found["roof"]["times"]["sam"]["share"]["mfu"] == pytest.approx(3 / 12, rel=0.05)
    assert any(sentence.startswith("of the roof (NVIDIA H200 SXM") for sentence in found["in_short"])
    assert PerfRun(measured, judgements, baseline()).to_json()["roof"] is None
