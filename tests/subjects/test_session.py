"""A session as a subject: each method is the session's own stage, at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case
from pytest_dsocr.subjects.protocol import OpenSubject, Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.conftest import model_of
from tests.crops import cropped_case

TOKENS = 12


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return cropped_case(pages, "markdown", TOKENS)


@pytest.fixture(scope="module")
def subject(tiny: Session[Any]) -> OpenSubject:
    return SessionSubject(tiny)


def test_stage_by_stage_it_is_the_session(tiny: Session[Any], subject: OpenSubject, case: Case) -> None:
    state = tiny.prefill(tiny.prepare(case.page, prompt=case.prompt, preset=case.preset))
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    seams = subject.vision(inputs)
    assert list(seams) == list(state.visions[0].seams) == list(SessionSubject.seams)
    assert all(torch.equal(seams[name], tensor) for name, tensor in state.visions[0].seams.items())
    actual = subject.prefill(inputs, seams["vision_fusion"])
    assert torch.equal(actual.logits, state.logits)
    assert (actual.cache.length, actual.cache.layers) == (state.cache.length, state.cache.layers)
    for token in (5, 9):
        assert torch.equal(subject.step(actual, token), tiny.decode_step(state, token)[0])
        assert torch.equal(actual.logits, state.logits)
        assert torch.equal(actual.cache.keys(1), state.cache.keys(1))


def test_prefill_reads_the_features_that_it_is_given(subject: OpenSubject, case: Case) -> None:
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    fused = subject.vision(inputs)["vision_fusion"]
    seen, doubled, blind = (subject.prefill(inputs, features).logits for features in (fused, 2 * fused, None))
    assert not torch.equal(seen, doubled)
    assert not torch.equal(seen, blind)


@pytest.mark.parametrize(
    "name", ["model.sam_model.blocks.1", "model.vision_model.transformer.layers.1", "model.layers.0", "lm_head"]
)
def test_modules_have_the_vendors_names(name: str, tiny: Session[Any], subject: OpenSubject) -> None:
    assert subject.module(name) is model_of(tiny).get_submodule(name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_loaded_as_the_setup_says(dtype: str) -> None:
    subject = session_subject(Setup("synthetic:tiny", dtype=dtype, attention="sdpa"))
    assert subject.dtype == dtype
    assert subject.policy is subject.session.policy
    [attend] = {layer.self_attn.attend for layer in model_of(subject.session).model.decoder_layers()}
    assert attend is attention_function("sdpa")
