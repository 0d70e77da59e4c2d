"""Unlimited-OCR's engine against its vendor's real ``infer``: to the bit in float32, past the ring."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.vendor_model import vendor_model
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.vendor_code.observe import observe_infer
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from suites.contract.asked import own_preset
from suites.contract.pages import PAGES
from tests.engine.written import write_synthetic
from tests.vendor_live.conftest import vendor_folder
from tests.vendor_live.published import check_published_config
from tests.vendor_live.to_the_bit import PAGE_NAMES, Pair, assert_equal_to_the_bit, case_of, load

OWN = MODELS["unlimited_ocr"]
SMALL_RING, NEW_TOKENS = 8, 20
VIEW = OWN.preset(own_preset("view", 256, 256, False))
CROPPED = OWN.preset(own_preset("cropped", 512, 640, True))  # as gundam, with a page that costs less

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("eight") / "checkpoint"
    write_synthetic("tiny", folder, torch.float32, family=OWN.with_ring(SMALL_RING))
    return load(str(folder), OWN)


@pytest.fixture(scope="module")
def published() -> Pair:
    return load("unlimited_ocr:synthetic:small", OWN)


ALL = [*((page, CROPPED) for page in PAGE_NAMES), *(("landscape", one) for one in OWN.presets.values())]


@pytest.mark.parametrize(("page", "preset"), ALL, ids=lambda one: getattr(one, "name", one))
def test_a_page_is_read_as_by_the_vendor(eight: Pair, page: str, preset: Preset, tmp_path: Path) -> None:
    case = case_of(page, preset, NEW_TOKENS, tmp_path, OWN)
    assert_equal_to_the_bit(eight.engine, case, eight.vendor.observe(case, keep_values=True))


@pytest.mark.parametrize("tokens", [300, 1100])
def test_past_a_ring_of_128(published: Pair, tokens: int, tmp_path: Path) -> None:
    case = case_of("portrait", VIEW, tokens, tmp_path, OWN)
    expected = published.vendor.observe(case, keep_values=True)
    assert len(expected.token_ids) == tokens
    assert_equal_to_the_bit(published.engine, case, expected)


TOGETHER = [["square"], ["landscape", "tiny"], ["portrait", "square", "portrait"], ["landscape"] * 5, ["square"] * 10]


@pytest.mark.parametrize("pages", TOGETHER, ids=len)
def test_pages_in_one_prompt_are_read_as_by_infer_multi(eight: Pair, pages: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for number, page in enumerate(pages):
        PAGES[page]().save(folder / f"{number:02}.png")
    case = make_case(folder, OWN.pages_prompt, "base", NEW_TOKENS, family=OWN)
    expected = eight.vendor.observe(replace(case, preset=VIEW), keep_values=True)
    assert_equal_to_the_bit(eight.engine, replace(case, preset=VIEW), expected)


def test_vendors_object_behind_the_engine(eight: Pair, tmp_path: Path) -> None:
    case = case_of("portrait", VIEW, 40, tmp_path, OWN)
    expected = eight.vendor.observe(case, keep_values=True)
    assert_equal_to_the_bit(Engine(vendor_model(eight.vendor.model), eight.engine.tokenizer), case, expected)


@pytest.mark.parametrize(("size", "window"), [(4, 12), (4, 0), (3, 2), (35, 128)])
def test_ngram_rule_in_a_window_is_the_vendors(eight: Pair, size: int, window: int, tmp_path: Path) -> None:
    """A model made to repeat itself is stopped at the same tokens by both."""
    case = case_of("square", VIEW, 200, tmp_path, OWN)
    policy = replace(eight.engine.policy, no_repeat_ngram_size=size, ngram_window=window or None)
    ruled = Engine(eight.engine.model, eight.engine.tokenizer, policy=policy)
    how: dict[str, Any] = {"no_repeat_ngram_size": size, "ngram_window": window, "image_id": eight.vendor.image_id}
    weights, vendors = model_of(eight.engine).lm_head.weight, eight.vendor.model.lm_head.weight.data
    saved = weights.clone()
    weights.copy_(model_of(eight.engine).model.embed_tokens.weight * 50)
    vendors.copy_(weights)
    try:
        run = observe_infer(eight.vendor.model, eight.vendor.tokenizer, case, tmp_path, **how)
        actual = ruled.run(case.page, prompt=case.prompt, preset=VIEW, max_new_tokens=case.max_new_tokens)
    finally:
        weights.copy_(saved)
        vendors.copy_(saved)
    assert ([best.ids[0] for best in run.best] != run.token_ids) is (window == 0 or window >= size), "did it fire?"
    assert [*actual.token_ids] == run.token_ids


def test_the_published_config_is_read_and_written() -> None:
    check_published_config(OWN)


def test_another_familys_checkpoint_is_refused() -> None:
    with pytest.raises(DsocrError, match=r"checkpoint of DeepSeek-OCR, and the vendor's folder has .* Unlimited-OCR;"):
        VendorRuntime.load(vendor_folder(OWN), "synthetic:tiny")
