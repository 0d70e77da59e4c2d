"""What the cache costs: exactly the computed bytes a token, and no more memory in decode than in prefill."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_dsocr.check import Check
from pytest_dsocr.compare.expected import as_expected
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.kv_probe import KvProbe
from pytest_dsocr.options import Config
from pytest_dsocr.stash import leave_out
from pytest_dsocr.subjects.protocol import DecodeView

from .walk import Walk

pytestmark = pytest.mark.dsocr_level("L2")

Probe = Callable[[DecodeView], KvProbe]
MB = 1_000_000


def test_a_token_takes_the_computed_bytes(
    walk: Walk, dsocr_config: Config, dsocr_kv: Probe, dsocr_check: Check
) -> None:
    from pytest_dsocr.engine.checkpoint import resolve

    decoder = resolve(dsocr_config.checkpoint).architecture.decoder
    probe = dsocr_kv(walk.start()[0])
    factors = (decoder.num_hidden_layers, decoder.num_key_value_heads, decoder.head_dim, probe.itemsize)
    expected = 2 * factors[0] * factors[1] * factors[2] * factors[3]
    why = f"2 x {' x '.join(map(str, factors))}: layers, heads, channels of a head, bytes of a number"
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
    request: pytest.FixtureRequest, whole_walk: Walk, dsocr_config: Config, dsocr_check: Check
) -> None:
    """Bytes allocated by torch, from vision to the prompt's end, and in the steps after it."""
    import torch

    if not dsocr_config.device.startswith("cuda"):
        leave_out(request.node, "gpu", f"the subject is on {dsocr_config.device}; name a GPU: --dsocr-device=cuda")
    if dsocr_config.isolate:
        leave_out(request.node, "gpu", "the subject's memory is its own process's; run this without --dsocr-isolate")
    walk, tokens = whole_walk, whole_walk.tokens
    inputs = walk.copies()
    torch.cuda.reset_peak_memory_stats()
    state, _ = walk.subject.prefill(inputs, walk.subject.vision(inputs)["vision_fusion"])
    prefill = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    walk.steps(state, tokens)
    decode = torch.cuda.max_memory_allocated()
    verdict = Verdict.MATCH if decode <= prefill else Verdict.WRONG
    told = f"{decode / MB:.1f} MB at most in decode, {prefill / MB:.1f} MB in vision and prefill (allowed)"
    dsocr_check([Comparison("decode/peak memory", verdict, told)])
