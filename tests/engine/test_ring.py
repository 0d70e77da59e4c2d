"""A cache whose generated tokens are kept in a ring: what is written over and attended to, alone and in batches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.families import FAMILIES
from pytest_dsocr.families.family import CachePolicy
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import PAGES
from tests.engine.written import synthetic_session

RING, STEPS = 8, 21
SMALL_RING = FAMILIES["unlimited_ocr"].with_ring(RING)
VIEW = Preset("view", 256, 256, False)


@pytest.fixture(scope="module")
def ringed() -> Engine[Any]:
    return synthetic_session(SMALL_RING)


def walked(own: Engine[Any], tokens: Sequence[int] = ()) -> tuple[list[Tensor], list[int]]:
    """The logits of a prompt and of each step along ``tokens``, or along its own; and what it chose."""
    state = own.prefill(own.prepare(PAGES["tiny"](), preset=VIEW))
    logits, chosen = [state.logits[0]], [int(state.logits.argmax())]
    for k in range(STEPS):
        logits.append(own.decode_step(state, tokens[k] if tokens else chosen[-1])[0])
        chosen.append(int(logits[-1].argmax()))
    return logits, chosen


def test_a_step_sees_the_prompt_and_the_last_of_the_ring_itself_included(ringed: Engine[Any]) -> None:
    """Against keys that are all kept, of which a mask hides those behind the prompt and before the ring."""
    whole = synthetic_session(replace(SMALL_RING, cache=CachePolicy()))
    prompt = ringed.prepare(PAGES["tiny"](), preset=VIEW).prompt_tokens

    def masked(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        if q.shape[2] > 1:
            return eager(q, k, v, lengths)
        seen = [at for at in range(k.shape[2]) if at < prompt or at >= k.shape[2] - RING]
        return eager(q, k[:, :, seen], v[:, :, seen], None)

    actual, tokens = walked(ringed)
    full, _ = walked(whole, tokens)
    for layer in model_of(whole).model.decoder_layers():
        layer.self_attn.attend = masked
    expected, _ = walked(whole, tokens)
    torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-4, atol=1e-5)
    differs = [k for k in range(STEPS) if (full[k] - actual[k]).abs().max() > 1e-3]
    assert differs == [*range(RING + 1, STEPS)], "full attention is another model from the step that overwrites first"


def test_the_last_prompt_token_may_be_decoded_again(ringed: Engine[Any]) -> None:
    state = ringed.prefill(ringed.prepare(PAGES["tiny"](), preset=VIEW))
    before, keys = state.logits.clone(), state.cache.keys(1).clone()
    torch.testing.assert_close(ringed.pipeline.redecode_last(state), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.cache.keys(1), keys, rtol=1e-4, atol=1e-5)
    with pytest.raises(DsocrError, match="9 tokens at once do not fit the end of a ring of 8; feed each alone"):
        model_of(ringed).decode(model_of(ringed).embed(torch.arange(9)[None]), state.cache)
