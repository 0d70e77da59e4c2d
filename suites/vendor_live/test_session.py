"""The session against the vendor's real ``infer``, page by page and preset by preset."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.presets import PRESETS, Preset
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.pipeline import DecodeState
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.vendor_model import VendorModel
from pytest_dsocr.vendor.code import build_vendor_model, load_vendor_code
from pytest_dsocr.vendor.observe import InferTokenizer, VendorRun, observe_infer
from suites.conftest import model_of
from suites.contract.pages import PAGES, write_page
from suites.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:small"
PROMPTS = {"markdown": "<image>\n<|grounding|>Convert the document to markdown. ", "free": "<image>\nFree OCR. "}
NEW_TOKENS = 64
LOOP_TOKENS = 200
SEAM_TOLERANCE = 1e-5

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@dataclass
class Pair:
    """The two sides, with the same weights."""

    session: Session[Any]
    vendor: Any
    folder: Path

    def observe(
        self, page: Path, preset: Preset, prompt: str, *, max_new_tokens: int = NEW_TOKENS, **options: Any
    ) -> VendorRun:
        tokenizer = InferTokenizer(self.session.tokenizer)
        return observe_infer(
            self.vendor,
            tokenizer,
            page,
            self.folder / "out",
            prompt=PROMPTS[prompt],
            preset=preset,
            max_new_tokens=max_new_tokens,
            **options,
        )


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    logging.disable(logging.WARNING)
    session = Session.from_checkpoint(CHECKPOINT)
    checkpoint = resolve(CHECKPOINT)
    vendor = build_vendor_model(load_vendor_code(vendor_folder()), checkpoint.architecture)
    checkpoint.load_into(vendor)
    assert dict(vendor.named_parameters()).keys() == model_of(session).state_dict().keys()
    yield Pair(session, vendor, tmp_path_factory.mktemp("vendor"))
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
@pytest.mark.parametrize("page", PAGES)
def test_session_is_the_vendors(pair: Pair, page: str, preset: Preset, tmp_path: Path) -> None:
    path = write_page(page, tmp_path)
    run = pair.observe(path, preset, "markdown")
    inputs = pair.session.prepare(path, prompt=PROMPTS["markdown"], preset=preset)
    check_inputs(inputs, run)

    state = pair.session.prefill(inputs)
    check_seams(state, run)
    assert relative(state.logits[0], run.step_logits[0]) < SEAM_TOLERANCE

    result = pair.session.run_prepared(inputs, max_new_tokens=NEW_TOKENS)
    assert list(result.token_ids) == run.token_ids


@pytest.mark.parametrize(("eval_mode", "size"), [(False, 20), (True, 35)])
def test_ngram_rule_is_the_vendors(pair: Pair, eval_mode: bool, size: int, tmp_path: Path) -> None:
    """A model made to repeat itself is stopped at the same token by both."""
    path = write_page("square", tmp_path)
    weights = model_of(pair.session).lm_head.weight
    saved = weights.clone()
    weights.copy_(model_of(pair.session).model.embed_tokens.weight * 50)
    pair.vendor.lm_head.weight.data.copy_(weights)
    try:
        run = pair.observe(path, PRESETS["tiny"], "free", max_new_tokens=LOOP_TOKENS, eval_mode=eval_mode)
        inputs = pair.session.prepare(path, prompt=PROMPTS["free"], preset="tiny")
        mine = pair.session.run_prepared(inputs, max_new_tokens=LOOP_TOKENS, no_repeat_ngram_size=size)
    finally:
        weights.copy_(saved)
        pair.vendor.lm_head.weight.data.copy_(saved)
    assert run.generate_kwargs["no_repeat_ngram_size"] == size
    unruled = [int(logits.argmax()) for logits in run.step_logits]
    assert unruled != run.token_ids, "the rule never fired, so this compared nothing"
    assert list(mine.token_ids) == run.token_ids


def test_vendors_object_behind_the_session(pair: Pair, tmp_path: Path) -> None:
    path = write_page("portrait", tmp_path)
    run = pair.observe(path, PRESETS["gundam"], "markdown")
    around = Session(VendorModel(pair.vendor), pair.session.tokenizer, instrument="timed")
    inputs = around.prepare(path, prompt=PROMPTS["markdown"], preset="gundam")
    state = around.prefill(inputs)
    check_seams(state, run)
    for first_token in ("prefill", "redecode"):
        result = around.run_prepared(inputs, max_new_tokens=NEW_TOKENS, first_token=first_token)
        assert list(result.token_ids) == run.token_ids
    assert result.counts.decode_steps == NEW_TOKENS


def check_inputs(inputs: Any, run: VendorRun) -> None:
    kwargs = run.generate_kwargs
    [(crops, page)] = kwargs["images"]
    same(inputs.input_ids, kwargs["input_ids"])
    same(inputs.images_seq_mask, kwargs["images_seq_mask"])
    same(inputs.images_spatial_crop, kwargs["images_spatial_crop"])
    same(inputs.images_crop, crops)
    same(inputs.images_ori, page)


def same(mine: Tensor, theirs: Tensor) -> None:
    assert mine.dtype == theirs.dtype
    assert torch.equal(mine, theirs)


def check_seams(state: DecodeState[Any], run: VendorRun) -> None:
    [vision], theirs = state.visions, run.seams
    assert vision.seams.keys() == theirs.keys()
    for name, mine in vision.seams.items():
        assert relative(mine, theirs[name]) < SEAM_TOLERANCE, name
    assert run.prompt_embeds is not None
    for layer in range(state.cache.layers):
        assert state.cache.keys(layer).shape[2] == run.prompt_embeds.shape[1]


def relative(mine: Tensor, theirs: Tensor) -> float:
    assert mine.shape == theirs.shape
    return float((mine - theirs).norm() / theirs.norm())
