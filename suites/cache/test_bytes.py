"""What the cache costs: exactly the computed bytes a token, and no more memory in decode than in prefill."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.plugin.stash import leave_out
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Peak, Walk, compare_peaks

pytestmark = pytest.mark.dsocr_level("L2")

Probe = Callable[[DecodeView], KvProbe]


def test_a_token_takes_the_computed_bytes(
    walk: Walk, dsocr_subject: Any, dsocr_config: Config, dsocr_kv: Probe, dsocr_check: Check
) -> None:
    """Numbers may be narrower than the dtype that the subject computes in, and not wider."""
    import torch

    from pytest_dsocr.engine.checkpoint import resolve

    decoder = resolve(dsocr_config.checkpoint).architecture.decoder
    probe = dsocr_kv(walk.start()[0])
    dtype = str(getattr(dsocr_subject, "dtype", dsocr_config.dtype))
    itemsize = min(probe.itemsize, getattr(torch, dtype).itemsize)
    factors = (decoder.num_hidden_layers, decoder.num_key_value_heads, decoder.head_dim, itemsize)
    expected = 2 * math.prod(factors)
    why = f"2 x {' x '.join(map(str, factors))}: layers, heads, channels of a head, bytes of a number in {dtype}"
    found = [as_expected("cache/bytes a token", probe.bytes_per_token, expected, why)]
    if (said := getattr(probe.state.cache, "bytes_per_token", None)) is not None:
        found.append(as_expected("cache/bytes a token, as it says", said, expected, "what it holds"))
    dsocr_check(found)


def test_growth_is_linear(walk: Walk, dsocr_kv: Probe, dsocr_check: Check) -> None:
    probe = dsocr_kv(walk.start()[0])
    a_token = probe.bytes_per_token
    found = []
    for step, token in enumerate(walk.tokens, 1):
        before = probe.total_bytes
        walk.steps(probe.state, [token])
        grown = probe.total_bytes - before
        found.append(as_expected(f"cache/bytes of step {step}", grown, a_token, "those of one token"))
    dsocr_check(found)


@pytest.mark.dsocr_gpu
def test_decode_peaks_no_higher_than_prefill(
    request: pytest.FixtureRequest, dsocr_subject: Any, first_page: Path, dsocr_config: Config, dsocr_check: Check
) -> None:
    """Bytes allocated by torch on the subject's GPU, from vision to the prompt's end, and in the steps after it."""
    device = dsocr_config.device
    if not device.startswith("cuda"):
        leave_out(request.node, "gpu", f"the subject is on {device}; name a GPU: --dsocr-device=cuda")
    if dsocr_config.isolate:
        leave_out(request.node, "gpu", "the subject's memory is its own process's; run this without --dsocr-isolate")
    walk = Walk.along(dsocr_subject, first_page, dsocr_config.presets[0])
    inputs = walk.copies()

    def begin() -> DecodeView:
        return walk.subject.prefill(inputs, walk.subject.vision(inputs)["vision_fusion"])[0]

    state, prefill = Peak.of(begin, device)
    _, decode = Peak.of(lambda: walk.steps(state, walk.tokens), device)
    dsocr_check([compare_peaks(prefill, decode, device)])
