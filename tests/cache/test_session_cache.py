"""What a session does beyond what the suite of the cache holds of any subject: counts, batches, the first token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from suites.contract.pages import PAGES
from tests.crops import CROPPED, CROPS

STEPS = 12


@pytest.fixture(scope="module")
def inputs(tiny: Engine[Any]) -> Inputs:
    return tiny.prepare(PAGES[CROPPED](), preset=CROPS)


def test_both_ways_to_the_first_token_give_the_same(tiny: Engine[Any], inputs: Inputs) -> None:
    from_prefill = tiny.run_prepared(inputs, max_new_tokens=STEPS)
    redecoded = tiny.run_prepared(inputs, max_new_tokens=STEPS, first_token="redecode")
    assert redecoded.token_ids == from_prefill.token_ids
    assert redecoded.counts.decode_steps == from_prefill.counts.decode_steps + 1


def test_rows_of_a_batch_hold_what_each_holds_alone(tiny: Engine[Any]) -> None:
    """The second row ends after two tokens and is fed padding from then on, which no other row sees."""
    prepared = [
        tiny.prepare(PAGES[name](), preset=preset) for name, preset in (("portrait", "tiny"), ("grey", "small"))
    ]
    rows, pad = [[11, 12, 13, 14, 15, 16], [21, 22]], tiny.tokenizer.special.pad
    alone = [tiny.prefill(inputs) for inputs in prepared]
    batch = tiny.pipeline.join([tiny.prefill(inputs) for inputs in prepared])
    for state, tokens in zip(alone, rows, strict=True):
        for token in tokens:
            tiny.decode_step(state, token)
    for step in range(len(rows[0])):
        tiny.decode_step(batch, [tokens[step] if step < len(tokens) else pad for tokens in rows])
    torch.testing.assert_close(batch.logits[0], alone[0].logits[0], rtol=1e-4, atol=1e-4)
    for row, state in enumerate(alone):
        for layer in range(state.cache.layers):
            mine = batch.cache.keys(layer)[row, :, : state.cache.length]
            torch.testing.assert_close(mine, state.cache.keys(layer)[0], rtol=1e-4, atol=1e-5)
