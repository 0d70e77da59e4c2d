"""A session as a subject: each method is the session's own stage, at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.engine.attention import attention_function
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.level import Level
from pytest_dsocr.subjects.protocol import OpenSubject, Setup, level_of
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


def test_it_offers_everything(subject: OpenSubject) -> None:
    assert level_of(subject) is level_of(SessionSubject) is Level.MODULES


def test_read_is_the_sessions_run(tiny: Session[Any], subject: OpenSubject, case: Case) -> None:
    for ceiling in (2, TOKENS):
        text = subject.read(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=ceiling)
        result = tiny.run(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=ceiling)
        assert (text, len(result.token_ids)) == (result.text, ceiling)


def test_inputs_are_the_sessions(tiny: Session[Any], subject: OpenSubject, case: Case) -> None:
    theirs = tiny.prepare(case.page, prompt=case.prompt, preset=case.preset).tensors
    mine = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())


def test_stage_by_stage_it_is_the_session(tiny: Session[Any], subject: OpenSubject, case: Case) -> None:
    state = tiny.prefill(tiny.prepare(case.page, prompt=case.prompt, preset=case.preset))
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    seams = subject.vision(inputs)
    assert list(seams) == list(state.visions[0].seams) == list(SessionSubject.seams)
    assert all(torch.equal(seams[name], tensor) for name, tensor in state.visions[0].seams.items())
    mine = subject.prefill(inputs, seams["vision_fusion"])
    assert torch.equal(mine.logits, state.logits)
    assert (mine.cache.length, mine.cache.layers) == (state.cache.length, state.cache.layers)
    for token in (5, 9):
        assert torch.equal(subject.step(mine, token), tiny.decode_step(state, token)[0])
        assert torch.equal(mine.logits, state.logits)
        assert torch.equal(mine.cache.keys(1), state.cache.keys(1))


def test_prefill_reads_the_features_that_it_is_given(subject: OpenSubject, case: Case) -> None:
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    fused = subject.vision(inputs)["vision_fusion"]
    seen, doubled, blind = (subject.prefill(inputs, features).logits for features in (fused, 2 * fused, None))
    assert not torch.equal(seen, doubled)
    assert not torch.equal(seen, blind)


def test_a_page_that_the_image_gate_shuts_out_has_no_vision(subject: OpenSubject, pages: Path) -> None:
    case = make_case(pages / "halves.png", "free", "tiny")
    assert subject.vision(subject.inputs(case.page, prompt=case.prompt, preset=case.preset)) == {}


@pytest.mark.parametrize(
    "name", ["model.sam_model.blocks.1", "model.vision_model.transformer.layers.1", "model.layers.0", "lm_head"]
)
def test_modules_have_the_vendors_names(name: str, tiny: Session[Any], subject: OpenSubject) -> None:
    assert subject.module(name) is model_of(tiny).get_submodule(name)


def test_a_module_that_is_not_there_is_an_attribute_error(subject: OpenSubject) -> None:
    with pytest.raises(AttributeError):
        subject.module("model.layers.99")


def test_text_and_files_are_the_sessions(tiny: Session[Any], case: Case, tmp_path: Path) -> None:
    subject = SessionSubject(tiny)
    tokens = tiny.run(case.page, prompt=case.prompt, preset=case.preset, max_new_tokens=TOKENS).token_ids
    text = subject.text_of(tokens)
    assert text == tiny.tokenizer.decode(tokens)
    subject.write(text, case.page, tmp_path / "mine")
    write_artifacts(text, case.page, tmp_path / "theirs")
    names = [sorted(path.name for path in (tmp_path / side).iterdir()) for side in ("mine", "theirs")]
    assert names[0] == names[1]
    assert "result.mmd" in names[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_loaded_as_the_setup_says(dtype: str) -> None:
    subject = session_subject(Setup("synthetic:tiny", dtype=dtype, attention="sdpa"))
    assert subject.dtype == dtype
    assert subject.policy is subject.session.policy
    [attend] = {layer.self_attn.attend for layer in model_of(subject.session).model.decoder_layers()}
    assert attend is attention_function("sdpa")
