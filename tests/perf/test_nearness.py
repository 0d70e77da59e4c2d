"""Measured times beside the roof: the shipped baselines of the session and of the vendor's code on an H200."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

import suites
from pytest_dsocr.contract.image import image_size
from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import Limit, devices
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.perf.baseline import read
from pytest_dsocr.perf.nearness import Nearness, nearness, roof_over, to_json
from pytest_dsocr.perf.rounds import Measured

BASELINES = Path(suites.__file__).parents[1] / "golden" / "baselines"
FULL, H200 = SYNTHETIC["full"], devices()["h200"]
PAGE_PX = image_size(next(path for path in shipped("all") if path.stem == "invoice_016"))


def baseline(subject: str, attention: str = "eager") -> Measured:
    name = f"{subject}-synthetic-full-bfloat16-{attention}-invoice_016-gundam.json"
    return read(BASELINES / "nvidia-h200" / name).measured


def over(measured: Measured) -> Roof:
    found = roof_over(measured, FULL, PAGE_PX, H200)
    assert found is not None
    return found


def near(measured: Measured) -> dict[str, Nearness]:
    return {one.quantity: one for one in nearness(measured, over(measured))}


def busy(measured: Measured, **busy_us: int) -> Measured:
    """The same with the GPU's time counted for these stages, and for no other."""
    counts = {name: value for name, value in measured.exact.items() if not name.endswith(".busy_us")}
    return replace(measured, exact={**counts, **{f"{name}.busy_us": value for name, value in busy_us.items()}})


@pytest.mark.parametrize(
    ("subject", "attention"), [("session", "eager"), ("session", "flash_attention_2"), ("vendor", "eager")]
)
def test_no_time_is_below_the_roof(subject: str, attention: str) -> None:
    found = near(baseline(subject, attention))
    assert {"sam", "clip", "projector", "vision_fusion", "prefill", "first_token", "decode", "page"} <= {*found}
    assert all(0 < one.share.roof < 1 for one in found.values())
    assert all(one.share.roof == pytest.approx(max(one.share.mfu, one.share.bandwidth)) for one in _single(found))


def _single(found: dict[str, Nearness]) -> list[Nearness]:
    """Those that are no sums of stages."""
    return [one for name, one in found.items() if name not in ("vision", "first_token", "page")]


def test_shares_are_of_the_median() -> None:
    measured = baseline("session")
    sam = near(measured)["sam"]
    assert sam.measured_ms == median(measured.wall_ms("sam"))
    flops_a_second = sam.bound.compute_ms * H200.tflops["bfloat16"] * 1e9 / (sam.measured_ms / 1e3)
    assert sam.share.mfu == pytest.approx(flops_a_second / 989e12)
    assert 0.05 < sam.share.mfu < 0.15


def test_the_vendors_step_is_farther_from_the_roof_than_the_sessions() -> None:
    session, vendor = near(baseline("session"))["decode"], near(baseline("vendor"))["decode"]
    assert session.limit is vendor.limit is Limit.LAUNCHES
    assert vendor.share.roof < 0.7 * session.share.roof < 0.02


def test_what_limits_a_stage_is_not_known_before_the_gpus_time_is_counted() -> None:
    measured = busy(baseline("session"))
    assert near(measured)["sam"].limit_in_words == "not known"
    sam_ms = near(measured)["sam"].measured_ms
    assert near(busy(measured, sam=round(900 * sam_ms)))["sam"].limit is Limit.KERNELS
    assert near(busy(measured, sam=round(100 * sam_ms)))["sam"].limit is Limit.LAUNCHES


def test_what_limits_the_shipped_baselines() -> None:
    for subject in ("session", "vendor"):
        limits = {name: one.limit for name, one in near(baseline(subject)).items()}
        assert limits.pop("sam") is Limit.KERNELS
        assert {*limits.values()} == {Limit.LAUNCHES}


def test_without_counted_tokens_or_a_peak_there_is_no_roof() -> None:
    measured = baseline("session")
    uncounted = {name: value for name, value in measured.exact.items() if name != "tokens.image"}
    assert roof_over(replace(measured, exact=uncounted), FULL, PAGE_PX, H200) is None
    setup = {**measured.identity["setup"], "dtype": "float64"}
    double = replace(measured, identity={**measured.identity, "setup": setup})
    assert roof_over(double, FULL, PAGE_PX, H200) is None


def test_the_work_is_what_was_measured() -> None:
    short = baseline("session")
    assert short.exact["tokens.output"] == 24
    long = replace(short, exact={**short.exact, "tokens.output": 47})
    steps = [(over(one).bounds["page"].ms - over(one).bounds["first_token"].ms) for one in (long, short)]
    assert steps[0] / steps[1] == pytest.approx(2, rel=0.01)


def test_it_can_be_kept_as_json() -> None:
    measured = baseline("session")
    found = to_json(measured, over(measured))
    assert found["device"] == "NVIDIA H200 SXM, 989 TFLOP/s in bfloat16, 4800 GB/s"
    assert found["source"] == H200.source
    assert found["prefill_in_steps"] == pytest.approx(4.75, abs=0.01)
    decode = found["times"]["decode"]
    assert decode["limit"] == "launch-bound"
    assert decode["share"]["roof"] == pytest.approx(decode["least_ms"] / decode["measured_ms"])
