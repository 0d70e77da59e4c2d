"""What only a GPU can show of the fast session: captured steps, with every kernel and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.engine.fast.step import PLAIN, operations_for
from pytest_dsocr.engine.pipeline import DecodeState
from suites.contract.pages import PAGES
from tests.waiting import no_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

TOKENS = 16
LIMITS = {"float32": 1e-4, "bfloat16": 0.03}


def fast_on_gpu(dtype: str) -> tuple[Engine[Any], FastDeepseekOCR]:
    session = Engine.from_checkpoint("mini", device="cuda", dtype=dtype, engine="fast")
    assert isinstance(session.model, FastDeepseekOCR)
    return session, session.model


def prefilled(session: Engine[Any], page: str = "portrait") -> DecodeState[Any]:
    return session.prefill(session.prepare(PAGES[page]()))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("plain", [True, False], ids=["plain torch", "kernels"])
def test_captured_steps_are_within_rounding(dtype: str, plain: bool) -> None:
    readable = Engine.from_checkpoint("mini", device="cuda", dtype=dtype)
    fast, model = fast_on_gpu(dtype)
    if plain:
        model.operations = PLAIN
    else:
        assert model.operations is operations_for(model.device)
    expected, found = prefilled(readable), prefilled(fast)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-3, atol=1e-3)
    for _ in range(TOKENS):
        token = int(expected.logits.argmax())
        theirs, mine = readable.decode_step(expected, token), fast.decode_step(found, token)
        assert (mine - theirs).norm() / theirs.norm() < LIMITS[dtype]
    assert len(found.cache.ready().captured) == 1, "captured once"


def test_a_step_does_not_wait_for_the_device() -> None:
    fast, model = fast_on_gpu("bfloat16")
    state = prefilled(fast)
    for _ in range(2):  # the second is captured
        fast.decode_step(state, 5)
    embeds = model.embed(torch.tensor([[5]], device="cuda"))
    with torch.no_grad(), no_waiting():
        for _ in range(3):
            model.decode(embeds, state.cache)


def test_two_pages_in_turn_have_graphs_of_their_own() -> None:
    fast, _ = fast_on_gpu("bfloat16")
    alone = fast.decode_step(prefilled(fast), 7)
    first, other = prefilled(fast), prefilled(fast, "landscape")
    fast.decode_step(other, 9)
    assert torch.equal(fast.decode_step(first, 7), alone)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_on_another_gpu_than_the_current_one() -> None:
    second = Engine.from_checkpoint("mini", device="cuda:1", dtype="bfloat16", engine="fast")
    first, _ = fast_on_gpu("bfloat16")
    page = PAGES["portrait"]()
    assert second.run(page, max_new_tokens=TOKENS).token_ids == first.run(page, max_new_tokens=TOKENS).token_ids
