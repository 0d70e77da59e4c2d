"""A cache whose generated tokens are kept in a ring: what is written over and attended to, alone and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.fast.model import FastDeepseekOCR
from pytest_dsocr.families import FAMILIES
from pytest_dsocr.families.family import CachePolicy
from pytest_dsocr.foundation.errors import DsocrError
from suites.contract.pages import PAGES
from tests.conftest import model_of
from tests.engine.written import synthetic_session

RING, STEPS = 8, 21
SMALL_RING = FAMILIES["unlimited_ocr"].with_ring(RING)
WITHOUT = replace(SMALL_RING, cache=CachePolicy())
VIEW = Preset("view", 256, 256, False)


@pytest.fixture(scope="module")
def ringed() -> Engine[Any]:
    return synthetic_session(SMALL_RING)


def walked(own: Engine[Any], tokens: Sequence[int] = ()) -> tuple[list[Tensor], list[int], Any]:
    """The logits of a prompt and of each step along ``tokens``, or along its own; what it chose; and its state."""
    state = own.prefill(own.prepare(PAGES["tiny"](), preset=VIEW))
    logits, chosen = [state.logits[0]], [int(state.logits.argmax())]
    for k in range(STEPS):
        logits.append(own.decode_step(state, tokens[k] if tokens else chosen[-1])[0])
        chosen.append(int(logits[-1].argmax()))
    return logits, chosen, state


def test_a_step_sees_the_prompt_and_the_last_of_the_ring_itself_included(ringed: Engine[Any]) -> None:
    """Against keys that are all kept, of which a mask hides those behind the prompt and before the ring."""
    whole = synthetic_session(WITHOUT)
    prompt = ringed.prepare(PAGES["tiny"](), preset=VIEW).prompt_tokens

    def masked(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        if q.shape[2] > 1:
            return eager(q, k, v, lengths)
        seen = [at for at in range(k.shape[2]) if at < prompt or at >= k.shape[2] - RING]
        return eager(q, k[:, :, seen], v[:, :, seen], None)

    actual, tokens, _ = walked(ringed)
    full, _, _ = walked(whole, tokens)
    for layer in model_of(whole).model.decoder_layers():
        layer.self_attn.attend = masked
    expected, _, _ = walked(whole, tokens)
    torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-4, atol=1e-5)
    differs = [k for k in range(STEPS) if (full[k] - actual[k]).abs().max() > 1e-3]
    assert differs == [*range(RING + 1, STEPS)], "full attention is another model from the step that overwrites first"


def test_one_slot_is_written_a_step_and_no_other_changes(ringed: Engine[Any]) -> None:
    inputs = ringed.prepare(PAGES["tiny"](), preset=VIEW)
    state, prompt = ringed.prefill(inputs), inputs.prompt_tokens
    before = state.cache.keys(1).clone()
    for generated in range(STEPS):
        ringed.decode_step(state, generated)
        after = state.cache.keys(1)
        changed = (after[:, :, : before.shape[2]] != before).any(dim=3).any(dim=1)[0].nonzero().flatten().tolist()
        assert after.shape[2] == prompt + min(generated + 1, RING)
        assert changed == ([prompt + generated % RING] if generated >= RING else [])
        assert state.cache.seen == [prompt + generated + 1]
        before = after.clone()
    embeds = model_of(ringed).embed(torch.tensor([[1, 2, 3, 4]]))
    with pytest.raises(DsocrError, match="4 tokens at once do not fit the end of a ring of 8; feed each alone"):
        model_of(ringed).decode(embeds, state.cache)


def test_rows_of_a_batch_have_rings_of_their_own(ringed: Engine[Any]) -> None:
    pages = [PAGES[name]() for name in ("tiny", "square")]
    presets = (VIEW, replace(VIEW, image_size=320))
    inputs = [ringed.prepare(page, preset=preset) for page, preset in zip(pages, presets, strict=True)]
    alone = [ringed.run_prepared(one, max_new_tokens=STEPS).token_ids for one in inputs]
    together = ringed._read(inputs, replace(ringed.policy, max_new_tokens=STEPS))
    assert [result.token_ids for result in together] == alone
    state = ringed.pipeline.join([ringed.prefill(one) for one in inputs])
    for k in range(STEPS):
        ringed.decode_step(state, [alone[0][k], alone[1][k]])
    assert state.cache.lengths == [prompt + RING for prompt in state.cache.prompts]


def test_the_last_prompt_token_may_be_decoded_again(ringed: Engine[Any]) -> None:
    state = ringed.prefill(ringed.prepare(PAGES["tiny"](), preset=VIEW))
    before, keys = state.logits.clone(), state.cache.keys(1).clone()
    torch.testing.assert_close(ringed.pipeline.redecode_last(state), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.cache.keys(1), keys, rtol=1e-4, atol=1e-5)


def test_fast_steps_have_the_ring_in_fixed_memory(ringed: Engine[Any]) -> None:
    expected, tokens, of_readable = walked(ringed)
    actual, _, state = walked(synthetic_session(SMALL_RING, FastDeepseekOCR), tokens)
    torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-4, atol=1e-5)
    assert (state.cache.lengths, state.cache.seen) == (of_readable.cache.lengths, of_readable.cache.seen)
    torch.testing.assert_close(state.cache.keys(1), of_readable.cache.keys(1), rtol=1e-4, atol=1e-5)
