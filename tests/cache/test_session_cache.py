"""What a session does beyond what the suite of the cache holds of any subject: counts, batches, the first token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.session import Session
from suites.contract.pages import PAGES
from tests.conftest import model_of
from tests.crops import CROPPED, CROPS

STEPS = 12


@pytest.fixture(scope="module")
def inputs(tiny: Session[Any]) -> Inputs:
    return tiny.prepare(PAGES[CROPPED](), preset=CROPS)


class Calls:
    """Counts the views that go through a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.views: list[int] = []
        self.handle = module.register_forward_pre_hook(lambda _, args: self.views.append(len(args[0])))

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def test_vision_runs_once_a_page_and_never_in_a_step(tiny: Session[Any], inputs: Inputs) -> None:
    columns, rows = inputs.images_spatial_crop[0].tolist()
    core = model_of(tiny).model
    with Calls(core.sam_model) as sam, Calls(core.vision_model) as clip:
        state = tiny.prefill(inputs)
        seen = (sam.views.copy(), clip.views.copy())
        for token in range(STEPS):
            tiny.decode_step(state, token)
    assert seen == ([columns * rows, 1], [columns * rows, 1])
    assert (sam.views, clip.views) == seen


def test_step_by_step_is_one_call(tiny: Session[Any], inputs: Inputs) -> None:
    whole = tiny.run_prepared(inputs, max_new_tokens=STEPS)
    state = tiny.prefill(inputs)
    tokens = [int(state.logits.argmax())]
    while len(tokens) < STEPS:
        tokens.append(int(tiny.decode_step(state, tokens[-1]).argmax()))
    assert tokens == list(whole.token_ids)
    assert whole.counts.decode_steps == state.steps


def test_both_ways_to_the_first_token_give_the_same(tiny: Session[Any], inputs: Inputs) -> None:
    from_prefill = tiny.run_prepared(inputs, max_new_tokens=STEPS)
    redecoded = tiny.run_prepared(inputs, max_new_tokens=STEPS, first_token="redecode")
    assert redecoded.token_ids == from_prefill.token_ids
    assert redecoded.counts.decode_steps == from_prefill.counts.decode_steps + 1


def test_a_prompt_of_one_token_skips_vision(tiny: Session[Any], inputs: Inputs) -> None:
    one = replace(inputs, input_ids=inputs.input_ids[:, :1], images_seq_mask=inputs.images_seq_mask[:, :1])
    with Calls(model_of(tiny).model.sam_model) as sam:
        state = tiny.prefill(one)
    assert sam.views == []
    assert state.cache.length == 1


def test_rows_of_a_batch_hold_what_each_holds_alone(tiny: Session[Any]) -> None:
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
