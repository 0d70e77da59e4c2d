"""Peaks of memory: what they say of decode, and that they are read from the subject's own GPU."""

from __future__ import annotations

import pytest
import torch

from pytest_dsocr.compare.verdict import Verdict
from suites.cache.walk import Peak, compare_peaks

needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")


@pytest.mark.parametrize(
    ("prefill", "decode", "verdict"),
    [
        (Peak(100, 900), Peak(200, 900), Verdict.MATCH),
        (Peak(100, 900), Peak(200, 901), Verdict.WRONG),
        (Peak(0, 0), Peak(0, 0), Verdict.NOT_COMPARED),
        (Peak(0, 0), Peak(0, 1), Verdict.NOT_COMPARED),
        (Peak(500, 500), Peak(500, 500), Verdict.NOT_COMPARED),
    ],
    ids=["as much", "more", "nothing at all", "nothing in prefill", "nothing but weights"],
)
def test_decode_may_peak_as_high_as_a_prefill_that_was_measured(prefill: Peak, decode: Peak, verdict: Verdict) -> None:
    compared = compare_peaks(prefill, decode, "cuda:1")
    assert compared.verdict is verdict
    assert compared.passes == (verdict is Verdict.MATCH)
    assert "cuda:1" in compared.measured


@needs_two_gpus
def test_a_peak_is_the_named_gpus() -> None:
    size = 64 << 20
    with torch.cuda.device(0):
        held, peak = Peak.of(lambda: torch.empty(size, dtype=torch.uint8, device="cuda:1"), "cuda:1")
        _, elsewhere = Peak.of(lambda: torch.empty(size, dtype=torch.uint8, device="cuda:1"), "cuda:0")
    assert peak.most - peak.before == held.nbytes
    assert elsewhere.most == elsewhere.before
