"""A measurement in sentences, and how near it is to the roofline: the shipped baselines on an H200."""

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.cost.roofline import Bound, Roof, devices
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from pytest_dsocr.timing.summary import RoofShare, nearness, of_host, of_judgement, of_run, roof_over
from tests.sizes import SYNTHETIC
from tests.timing.made import measured, shipped_baseline

TIMES = {"prefill": [80.0] * 3, "first_token": [97.0] * 3, "decode": [14.0, 14.2, 14.3], "page": [991.0] * 3}
EXACT = {"tokens.prompt": 1239, "tokens.output": 64, "decode.busy_us": 2110, "decode.kernels": 806}
SLOWER = Judgement("decode", TimingVerdict.SLOWER, 14.2, 17.04, 1.2, 1.18, 1.225, 0.05, 24, 24)
FULL, H200 = SYNTHETIC["full"], devices()["h200"]
PAGE_PX = load_image(next(path for path in shipped("all") if path.stem == "invoice_016")).size


def test_a_run_in_sentences(snapshot: SnapshotAssertion) -> None:
    bounds = {"prefill": Bound(1.2, 0.6, 1.2), "decode": Bound(0.25, 0.1, 0.25), "page": Bound(19.8, 3.0, 16.0)}
    whole = measured(TIMES, {**EXACT, "prefill.busy_us": 60_000})
    alone = measured({"page": [20.0] * 4})
    spoilt = replace(alone.rounds[0], spoilt=("the GPU was throttled (heat)",))
    runs = {
        "bare": [*of_run(measured(TIMES, EXACT))],
        "a shipped baseline": [*of_run(shipped_baseline())],
        "under a roof": [*of_run(whole, Roof(H200, "bfloat16", bounds))],
        "device not watched": [*of_run(measured(TIMES, {"tokens.output": 64, "tokens.prompt": 1239}))],
        "the page alone, a round spoilt": [*of_run(replace(alone, rounds=(spoilt, *alone.rounds[1:])))],
        "all rounds spoilt": [*of_run(replace(alone, rounds=(spoilt,)))],
        "no rounds": [*of_run(replace(alone, rounds=()))],
        "a host as fast, and a slower one": [*of_host(1.01), *of_host(1.07)],
    }
    assert runs == snapshot


def test_a_verdict_in_a_sentence(snapshot: SnapshotAssertion) -> None:
    ambiguous = replace(SLOWER, pace=TimingVerdict.AMBIGUOUS, wanted=70)
    judgements = (SLOWER, ambiguous, replace(ambiguous, reason="nothing will"))
    assert [of_judgement(one, "an early step") for one in judgements] == snapshot
    assert of_judgement(Judgement.not_compared("decode", "it has no rounds")) == "it has no rounds"


def over(measured: Measured) -> Roof:
    found = roof_over(measured, FULL, PAGE_PX, H200)
    assert found is not None
    return found


def near(measured: Measured) -> dict[str, RoofShare]:
    return {one.quantity: one for one in nearness(measured, over(measured))}


@pytest.mark.parametrize(
    ("subject", "attention"), [("engine", "eager"), ("engine", "flash_attention_2"), ("vendor", "eager")]
)
def test_no_time_is_below_the_roof(subject: str, attention: str) -> None:
    found = near(shipped_baseline(subject, attention))
    assert {"sam", "clip", "projector", "vision_fusion", "prefill", "first_token", "decode", "page"} <= {*found}
    assert all(0 < one.share.roof < 1 for one in found.values())
    single = [one for name, one in found.items() if name not in ("vision", "first_token", "page")]
    assert all(one.share.roof == pytest.approx(max(one.share.mfu, one.share.bandwidth)) for one in single)


def test_the_roof_is_of_what_was_measured_and_none_without_counted_tokens_or_a_peak() -> None:
    short = shipped_baseline()
    assert short.exact["tokens.output"] == 24
    long = replace(short, exact={**short.exact, "tokens.output": 47})
    steps = [over(one).bounds["page"].ms - over(one).bounds["first_token"].ms for one in (long, short)]
    assert steps[0] / steps[1] == pytest.approx(2, rel=0.01)
    uncounted = {name: value for name, value in short.exact.items() if name != "tokens.image"}
    assert roof_over(replace(short, exact=uncounted), FULL, PAGE_PX, H200) is None
    setup = {**short.identity["setup"], "dtype": "float64"}
    assert roof_over(replace(short, identity={**short.identity, "setup": setup}), FULL, PAGE_PX, H200) is None
