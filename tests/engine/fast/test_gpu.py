"""Tests of the fast engine that need a GPU: captured graphs are right, with each kernel and without."""

from contextlib import ExitStack
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fast.step import PLAIN, operations_for
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.layers.fast.calls import Graph
from pytest_dsocr.models.deepseek_ocr.fast import FastDeepseekOCR
from suites.contract.pages import PAGES
from tests.waiting import no_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

TOKENS = 16
STEP_LIMITS = {"float32": 1e-4, "bfloat16": 0.03}
LIMITS = {"float32": 1e-3, "bfloat16": 0.03}
"""Relative; convolutions in float32 multiply in TF32, and products do not."""


def on_gpu(dtype: str, engine: Any = "fast", attention: str = "eager") -> Engine[Any]:
    return Engine.from_checkpoint("mini", device="cuda", dtype=dtype, engine=engine, attention=attention)


def prefilled(engine: Engine[Any], page: str = "portrait") -> DecodeState[Any]:
    return engine.prefill(engine.prepare(PAGES[page]()))


def answers(engine: Engine[Any], inputs: Inputs) -> dict[str, torch.Tensor]:
    """Every seam of a page, copied: vision's, the first logits, and a layer's keys."""
    state = engine.prefill(inputs)
    kept = {**state.visions[0].seams, "logits": state.logits, "keys": state.cache.keys(1)}
    return {name: tensor.clone() for name, tensor in kept.items()}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", LIMITS)
def test_a_page_is_the_same_before_and_after_it_is_captured(dtype: str, attention: str) -> None:
    readable, fast = on_gpu(dtype, "readable", attention), on_gpu(dtype, attention=attention)
    pages = [fast.prepare(PAGES[name]()) for name in ("portrait", "landscape")]
    first = [answers(fast, page) for page in pages]
    for _ in range(2):
        for page, expected in zip(pages, first, strict=True):
            for name, found in answers(fast, page).items():
                assert torch.equal(found, expected[name]), name
    for page, actual in zip(pages, first, strict=True):
        for name, right in answers(readable, page).items():
            assert (actual[name].float() - right.float()).norm() / right.float().norm() < LIMITS[dtype], name


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_watched_blocks_change_nothing(attention: str) -> None:
    """To the bit, captured or not: else what is read is not what was watched."""
    fast = on_gpu("bfloat16", attention=attention)
    page = fast.prepare(PAGES["portrait"]())
    expected = [answers(fast, page) for _ in range(2)][1]
    hooked = ("model.sam_model.blocks.2", "model.vision_model.transformer.layers.1", "model.layers.1")
    with ExitStack() as hooks:
        heard: list[object] = []
        for name in hooked:
            module = model_of(fast).get_submodule(name)
            hooks.enter_context(module.register_forward_hook(lambda _module, _given, out: heard.append(out)))
        found = answers(fast, page)
        assert len(heard) == 5, "two of SAM, two of CLIP, one of the decoder"
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_encoder_that_is_hooked_is_captured_all_the_same(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks, as for timing, are called around the graph with the graph's output."""
    fast, replay, replayed = on_gpu("bfloat16", attention=attention), Graph.replay, list[object]()
    page = fast.prepare(PAGES["portrait"]())
    expected = [answers(fast, page) for _ in range(2)][1]

    def counted(graph: Graph[Any]) -> Any:
        replayed.append(graph)
        return replay(graph)

    monkeypatch.setattr(Graph, "replay", counted)
    heard: list[torch.Tensor] = []
    with ExitStack() as hooks:
        for name in ("model.sam_model", "model.vision_model"):
            module = model_of(fast).get_submodule(name)
            hooks.enter_context(module.register_forward_hook(lambda _module, _given, out: heard.append(out)))
        fast.pipeline.vision(page)
    assert len(replayed) == len(heard) == 4, "SAM and CLIP, of crops and page"
    for name, out in zip(("sam.crops", "clip.crops", "sam.page", "clip.page"), heard, strict=True):
        assert torch.equal(out, expected[name]), name


def test_with_eager_attention_vision_is_the_readable_one_to_the_bit() -> None:
    """CLIP's residual is in float32 under autocast, which is not to be lost."""
    readable, fast = on_gpu("bfloat16", "readable"), on_gpu("bfloat16")
    page = readable.prepare(PAGES["portrait"]())
    [expected] = readable.pipeline.vision(page)
    for _ in range(3):
        [found] = fast.pipeline.vision(page)
        for name, seam in expected.seams.items():
            assert found.seams[name].dtype == seam.dtype
            assert torch.equal(found.seams[name], seam), name


@pytest.mark.parametrize("dtype", STEP_LIMITS)
@pytest.mark.parametrize("plain", [True, False], ids=["plain torch", "kernels"])
def test_captured_steps_are_within_rounding(dtype: str, plain: bool) -> None:
    readable = on_gpu(dtype, "readable")
    fast = on_gpu(dtype)
    model = fast.model
    assert isinstance(model, FastDeepseekOCR)
    if plain:
        model.operations = PLAIN
    else:
        assert model.operations is operations_for(model.device)
    expected, found = prefilled(readable), prefilled(fast)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-3, atol=1e-3)
    for _ in range(TOKENS):
        token = int(expected.logits.argmax())
        right, actual = readable.decode_step(expected, token), fast.decode_step(found, token)
        assert (actual - right).norm() / right.norm() < STEP_LIMITS[dtype]
    assert len(found.cache.ready().captured) == 1, "captured once"


def test_a_step_does_not_wait_for_the_device() -> None:
    fast = on_gpu("bfloat16")
    state = prefilled(fast)
    for _ in range(2):  # the second is captured
        fast.decode_step(state, 5)
    embeds = fast.model.embed(torch.tensor([[5]], device="cuda"))
    with torch.no_grad(), no_waiting():
        for _ in range(3):
            fast.model.decode(embeds, state.cache)


def test_two_pages_in_turn_have_graphs_of_their_own() -> None:
    fast = on_gpu("bfloat16")
    alone = fast.decode_step(prefilled(fast), 7)
    first, other = prefilled(fast), prefilled(fast, "landscape")
    fast.decode_step(other, 9)
    assert torch.equal(fast.decode_step(first, 7), alone)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_on_another_gpu_than_the_current_one() -> None:
    second = Engine.from_checkpoint("mini", device="cuda:1", dtype="bfloat16", engine="fast")
    first = on_gpu("bfloat16")
    page = PAGES["portrait"]()
    assert second.run(page, max_new_tokens=TOKENS).token_ids == first.run(page, max_new_tokens=TOKENS).token_ids
