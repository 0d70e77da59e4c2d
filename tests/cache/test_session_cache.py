"""Prefill and decode of a whole session: what grows, what stays, what runs once."""

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


def test_cache_starts_at_the_prompts_length_and_grows_by_one_in_every_layer(tiny: Session[Any], inputs: Inputs) -> None:
    state = tiny.prefill(inputs)
    for step in range(STEPS):
        lengths = {state.cache.keys(layer).shape[2] for layer in range(state.cache.layers)}
        assert lengths == {inputs.prompt_tokens + step}
        tiny.decode_step(state, 5)


def test_earlier_positions_are_never_written_again(tiny: Session[Any], inputs: Inputs) -> None:
    state = tiny.prefill(inputs)
    before = [state.cache.keys(layer).clone() for layer in range(state.cache.layers)]
    for token in range(STEPS):
        tiny.decode_step(state, token)
    for layer, keys in enumerate(before):
        assert torch.equal(state.cache.keys(layer)[:, :, : inputs.prompt_tokens], keys)


def test_growth_is_linear_in_exactly_the_computed_bytes(tiny: Session[Any], inputs: Inputs) -> None:
    decoder = model_of(tiny).arch.decoder
    expected = 2 * decoder.num_hidden_layers * decoder.num_key_value_heads * decoder.head_dim * 4
    state = tiny.prefill(inputs)
    assert state.cache.bytes_per_token == expected


def test_step_by_step_is_one_call(tiny: Session[Any], inputs: Inputs) -> None:
    whole = tiny.run_prepared(inputs, max_new_tokens=STEPS)
    state = tiny.prefill(inputs)
    tokens = [int(state.logits.argmax())]
    while len(tokens) < STEPS:
        tokens.append(int(tiny.decode_step(state, tokens[-1]).argmax()))
    assert tokens == list(whole.token_ids)
    assert whole.counts.decode_steps == state.steps


def test_teacher_forced_logits_are_the_steps(tiny: Session[Any]) -> None:
    """A prompt of text run at once, and token by token into the cache."""
    ids = torch.arange(3, 43)[None]
    model = tiny.model
    once = model.new_cache()
    all_at_once = model.decode(model.embed(ids), once, all_logits=True)
    stepped = model.new_cache()
    one_by_one = [model.decode(model.embed(ids[:, i : i + 1]), stepped) for i in range(ids.shape[1])]
    torch.testing.assert_close(torch.cat(one_by_one, dim=1), all_at_once, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(stepped.keys(1), once.keys(1), rtol=1e-4, atol=1e-5)


def test_going_on_from_a_cache_is_one_call(tiny: Session[Any]) -> None:
    ids = torch.arange(3, 43)[None]
    model = tiny.model
    once, parts = model.new_cache(), model.new_cache()
    all_at_once = model.decode(model.embed(ids), once, all_logits=True)
    chunks = [model.decode(model.embed(part), parts, all_logits=True) for part in ids.split([17, 1, 22], dim=1)]
    torch.testing.assert_close(torch.cat(chunks, dim=1), all_at_once, rtol=1e-4, atol=1e-4)


def test_both_ways_to_the_first_token_give_the_same(tiny: Session[Any], inputs: Inputs) -> None:
    from_prefill = tiny.run_prepared(inputs, max_new_tokens=STEPS)
    redecoded = tiny.run_prepared(inputs, max_new_tokens=STEPS, first_token="redecode")
    assert redecoded.token_ids == from_prefill.token_ids
    assert redecoded.counts.decode_steps == from_prefill.counts.decode_steps + 1


def test_a_page_read_again_after_another_gives_the_same(tiny: Session[Any]) -> None:
    pages = [PAGES[name]() for name in ("portrait", "landscape", "portrait")]
    first, other, again = (tiny.run(page, preset="tiny", max_new_tokens=STEPS).token_ids for page in pages)
    assert first == again
    assert first != other


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
