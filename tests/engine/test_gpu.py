"""Tests of the engine that need a GPU."""

from typing import Any

import pytest
import torch

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.activations import quick_gelu
from suites.contract.pages import PAGES
from tests.waiting import no_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

TOKENS = 16


@pytest.fixture(scope="module")
def on_gpu() -> Engine[Any]:
    return Engine.from_checkpoint("synthetic:tiny", device="cuda", instrument="timed")


def test_tokens_are_those_of_the_cpu(tiny: Engine[Any], on_gpu: Engine[Any]) -> None:
    page = PAGES["portrait"]()
    assert on_gpu.run(page, max_new_tokens=TOKENS).token_ids == tiny.run(page, max_new_tokens=TOKENS).token_ids


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_random_weights_are_those_of_the_cpu(dtype: str) -> None:
    engines = (Engine.from_checkpoint("synthetic:tiny", device=device, dtype=dtype) for device in ("cpu", "cuda"))
    pairs = zip(*(model_of(engine).parameters() for engine in engines), strict=True)
    assert all(made.cpu().equal(expected) for expected, made in pairs)


def test_a_decode_step_does_not_wait_for_the_device(on_gpu: Engine[Any]) -> None:
    state = on_gpu.prefill(on_gpu.prepare(PAGES["tiny"]()))
    embeds = model_of(on_gpu).embed(torch.tensor([[5]], device="cuda"))
    with torch.no_grad(), no_waiting():
        model_of(on_gpu).decode(embeds, state.cache)


def test_stages_are_timed_by_the_device(on_gpu: Engine[Any]) -> None:
    """A stage's time holds the work it launched, though the host did not wait for it."""
    busy = torch.randn(4096, 4096, device="cuda")
    on_gpu.stages.clear()
    with on_gpu.stages("clip"):
        for _ in range(50):
            busy = busy @ busy / 4096
    with on_gpu.stages("projector"):
        pass
    times = on_gpu.stages.times()
    assert times["clip"].total_ms > 50
    assert times["projector"].total_ms < 1


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_an_engine_on_another_gpu_than_the_current_one(on_gpu: Engine[Any]) -> None:
    second = Engine.from_checkpoint("synthetic:tiny", device="cuda:1", instrument="timed")
    page = PAGES["portrait"]()
    result = second.run(page, max_new_tokens=TOKENS)
    assert result.token_ids == on_gpu.run(page, max_new_tokens=TOKENS).token_ids
    busy = torch.randn(4096, 4096, device="cuda:1")
    with second.stages("clip"):
        for _ in range(50):
            busy = busy @ busy / 4096
    assert second.stages.times()["clip"].total_ms > 50


def test_bf16_runs_under_autocast_as_the_vendors_infer_does() -> None:
    engine = Engine.from_checkpoint("synthetic:tiny", device="cuda", dtype="bfloat16")
    assert engine.pipeline.autocast
    state = engine.prefill(engine.prepare(PAGES["tiny"]()))
    assert state.visions[0].page["sam"].dtype == torch.bfloat16
    assert state.visions[0].page["clip"].dtype == torch.float32, "CLIP's residual stream is float32 under autocast"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_fused_activation_is_the_written_out_one(dtype: torch.dtype) -> None:
    x = 3 * torch.randn(257, 4096, device="cuda", dtype=dtype)
    wide = x.float()
    written_out = (wide * torch.sigmoid(1.702 * wide)).to(dtype)
    torch.testing.assert_close(quick_gelu(x), written_out, rtol=1e-6 if dtype == torch.float32 else 0, atol=1e-7)
