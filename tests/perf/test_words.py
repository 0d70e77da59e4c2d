"""What a measurement says in sentences, and the same rounds told to pytest-benchmark."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import Bound, devices
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.playback import Playback
from pytest_dsocr.perf.words import distribution, distributions, in_short, ms, told
from tests.perf.made import measured

TIMES = {"prefill": [80.0] * 3, "first_token": [97.0] * 3, "decode": [14.0, 14.2, 14.3], "page": [991.0] * 3}
EXACT = {"tokens.prompt": 1239, "tokens.output": 64, "decode.busy_us": 2110, "decode.kernels": 806}
LAUNCH_BOUND = (
    "decode is launch-bound: of 14.2 ms on the wall the device works 2.11 ms, in 806 kernels; it idles 85% of a step"
)
SLOWER = Judgement("decode", Pace.SLOWER, 14.2, 17.04, 1.2, 1.18, 1.225, 0.05, 24, 24)


def test_it_says_where_the_time_goes_and_what_limits_it() -> None:
    assert list(in_short(measured(TIMES, EXACT))) == [
        "a page takes 991 ms, 64 tokens of 14.2 ms (70 a second); the first comes after 97 ms, 10% of the page",
        LAUNCH_BOUND,
        "prefill takes as long as 5.6 decode steps, for it runs 1239 tokens at once where a step runs one",
    ]


@pytest.mark.parametrize(
    ("busy_us", "says"),
    [(7000, "launch-bound: "), (7200, "bound by the device: "), (15_000, "bound by the device: ")],
)
def test_from_half_a_step_on_launches_are_the_limit(busy_us: int, says: str) -> None:
    _, limit, _ = in_short(measured(TIMES, {**EXACT, "decode.busy_us": busy_us}))
    assert limit.startswith(f"decode is {says}of 14.2 ms")
    assert busy_us < 15_000 or limit.endswith("it idles 0% of a step")


def test_under_a_roof_it_says_how_near_each_stage_is_and_what_was_to_be_expected() -> None:
    bounds = {"prefill": Bound(1.2, 0.6, 1.2), "decode": Bound(0.25, 0.1, 0.25), "page": Bound(19.8, 3.0, 16.0)}
    run = measured(TIMES, {**EXACT, "prefill.busy_us": 60_000})
    roof = Roof(devices()["h200"], "bfloat16", bounds)
    assert list(in_short(run, roof))[1:] == [
        LAUNCH_BOUND,
        "of the roof (NVIDIA H200 SXM, 989 TFLOP/s in bfloat16, 4800 GB/s): kernel-bound: prefill 1.5%; "
        "launch-bound: decode 1.8%, page 2.0%",
        "prefill takes as long as 5.6 decode steps, for it runs 1239 tokens at once where a step runs one; "
        "with both at the roof it would be 4.8",
    ]


def test_nothing_is_said_of_a_device_that_was_not_watched_or_of_stages_that_are_not_offered() -> None:
    assert len(list(in_short(measured(TIMES, {"tokens.output": 64, "tokens.prompt": 1239})))) == 2
    assert list(in_short(measured({"page": [20.0] * 3}))) == ["a page takes 20 ms"]


def test_rounds_that_were_not_used_are_told() -> None:
    run = measured({"page": [20.0] * 4})
    throttled = replace(run.rounds[0], spoilt=("the GPU was throttled (heat)",))
    part = replace(run, rounds=(throttled, *run.rounds[1:]))
    assert [*in_short(part)][-1] == "1 of 4 rounds were not used: the GPU was throttled (heat)"
    assert [*in_short(replace(run, rounds=(throttled,)))] == ["no good round of 1: the GPU was throttled (heat)"]
    assert [*in_short(replace(run, rounds=()))] == ["no good round of 0: none was taken"]


def test_a_verdict_comes_first_and_then_what_it_rests_on() -> None:
    assert told(SLOWER) == ("SLOWER: +20.0% (+18.0% to +22.5%), allowed +5.0%; 17 ms, the baseline 14.2 ms, 24 rounds")
    assert ", an early step 14.2 ms, " in told(SLOWER, "an early step")


def test_what_is_ambiguous_says_what_would_tell() -> None:
    ambiguous = replace(SLOWER, pace=Pace.AMBIGUOUS, wanted=70)
    assert told(ambiguous).endswith("24 rounds; some 70 rounds would tell")
    assert told(replace(ambiguous, reason="nothing will")).endswith("24 rounds; nothing will")
    assert told(replace(SLOWER, pace=Pace.NOT_COMPARED, reason="it has no rounds")) == "it has no rounds"


def test_both_sides_are_drawn_on_one_scale() -> None:
    before, after = distributions([10.0, 10.0, 10.0, 11.0], [22.0, 21.0])
    assert before == "baseline |█▃          | 10 ms to 22 ms, 4 rounds"
    assert after == "this run |           █| 2 rounds"


def test_a_distribution_has_every_round_in_it() -> None:
    assert distribution([1.0, 2.0], 1.0, 2.0) == "█          █"
    assert distribution([5.0], 5.0, 5.0) == "█           ", "where all are equal"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.01234, "0.0123 ms"), (14.2, "14.2 ms"), (991.4, "991 ms"), (12_345, "12.3 s")]
)
def test_three_figures_are_shown(value: float, shown: str) -> None:
    assert ms(value) == shown


def test_a_playback_is_a_clock_that_moves_by_the_rounds() -> None:
    times_ms = [14.2, 0.001, 97.0]
    playback = Playback(times_ms)
    clock = [playback.now()]
    for _ in times_ms:
        playback.play()
        clock += [playback.now()]
        assert playback.now() == playback.now(), "it does not move by itself"
    assert [1e3 * (b - a) for a, b in pairwise(clock)] == pytest.approx(times_ms)
