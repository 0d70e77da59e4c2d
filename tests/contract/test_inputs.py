"""The inputs against what the vendor's ``infer`` handed to ``generate``, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pytest_dsocr.contract.inputs import Inputs, pixels
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.places import VENDOR_VOCAB_SIZE
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.observation import runs
from suites.contract.asked import OWN_PAGES, OWN_PRESETS
from suites.contract.pages import PAGES, ZERO_SUM_PAGES, rgb, write_page
from tests.contract.digest import digest
from tests.contract.recorded_inputs import RECORDED, RecordedTokenizer

PAGES_BY_NAME = {**PAGES, **ZERO_SUM_PAGES}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.byte_level(VENDOR_VOCAB_SIZE)


@pytest.fixture(scope="module")
def page_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_page(name, folder) for name in PAGES_BY_NAME}


def test_every_page_and_preset_was_recorded() -> None:
    recorded = [(case["page"], case["preset"]) for case in RECORDED["prepared"]]
    own = {page: [preset.name for preset in OWN_PRESETS] for page in OWN_PAGES}
    assert recorded == [(page, preset) for page in PAGES_BY_NAME for preset in (*DEFAULT.presets, *own.get(page, ()))]


@pytest.mark.parametrize("case", RECORDED["prepared"], ids=lambda case: f"{case['page']}-{case['preset']}")
def test_inputs_are_the_vendors(case: dict[str, Any], page_files: dict[str, Path], tokenizer: Tokenizer) -> None:
    preset = {own.name: own for own in OWN_PRESETS}.get(case["preset"], case["preset"])
    inputs = DEFAULT.prepare(page_files[case["page"]], "markdown", preset, tokenizer)
    mine = digest(inputs.tensors)
    assert mine == {name: case[name] for name in mine}
    if "gate_sum" in case:
        assert inputs.has_vision == (case["gate_sum"] != 0)


@pytest.mark.parametrize("case", RECORDED["prompts"], ids=lambda case: case["name"])
def test_prompts_are_the_vendors_in_the_real_vocabulary(case: dict[str, Any], page_files: dict[str, Path]) -> None:
    inputs = DEFAULT.prepare(page_files["square"], case["text"], "gundam", RecordedTokenizer(case["encoded"]))
    mine = digest(inputs.tensors)
    assert {name: mine[name] for name in ("input_ids", "images_seq_mask")} == {
        name: case[name] for name in ("input_ids", "images_seq_mask")
    }


def test_703_ids_of_which_693_are_image_ids() -> None:
    """A page of 2 x 2 crops and the markdown prompt, in the real vocabulary."""
    [case] = [case for case in RECORDED["prompts"] if case["name"] == "markdown"]
    inputs = DEFAULT.prepare(rgb(1000, 1000), "markdown", "gundam", RecordedTokenizer(case["encoded"]))
    assert inputs.images_spatial_crop.tolist() == [[2, 2]]
    assert (inputs.prompt_tokens, inputs.image_tokens) == (703, 693)


@pytest.mark.parametrize("preset", DEFAULT.presets)
def test_several_images_are_their_own_inputs_in_a_row(preset: str, tokenizer: Tokenizer) -> None:
    pages = [rgb(900, 700), rgb(300, 200, seed=2), rgb(1300, 650, seed=3)]
    together = DEFAULT.prepare(pages, "A <image> b <image> c <image> d", preset, tokenizer)
    alone = [DEFAULT.prepare(page, "<image>", preset, tokenizer) for page in pages]
    assert torch.equal(together.images_ori, torch.cat([one.images_ori for one in alone]))
    assert torch.equal(together.images_spatial_crop, torch.cat([one.images_spatial_crop for one in alone]))
    cropped = [one.images_crop for one in alone if one.images_crop.any()]
    if preset == "gundam":
        assert [len(crops) for crops in cropped] == [6, 2]
        assert torch.equal(together.images_crop, torch.cat(cropped))
    lengths = [length for value, length in runs(together.images_seq_mask) if value]
    assert lengths == [one.image_tokens for one in alone]


def test_one_page_or_a_list_of_one_are_the_same(tokenizer: Tokenizer) -> None:
    one, listed = (DEFAULT.prepare(pages, "free", "tiny", tokenizer) for pages in (rgb(50, 50), [rgb(50, 50)]))
    assert digest(one.tensors) == digest(listed.tensors)


def test_text_only(tokenizer: Tokenizer) -> None:
    inputs = DEFAULT.prepare([], "Hello.", "gundam", tokenizer)
    assert inputs.input_ids.tolist() == [[0, *tokenizer.encode("Hello.")]]
    assert not inputs.images_seq_mask.any()
    assert inputs.images_spatial_crop.tolist() == [[0, 0]]
    assert inputs.images_ori.shape == (1, 3, 640, 640)
    assert inputs.images_crop.shape == (1, 3, 1024, 1024)
    assert inputs.images_ori.dtype == inputs.images_crop.dtype == torch.float32
    assert (inputs.image_tokens, inputs.has_vision) == (0, False)


@pytest.mark.parametrize(("page", "preset", "has_vision"), [("square_halves", "base", False), ("square", "base", True)])
def test_the_gate_sums_the_whole_page(page: str, preset: str, has_vision: bool, tokenizer: Tokenizer) -> None:
    assert DEFAULT.prepare(PAGES_BY_NAME[page](), "free", preset, tokenizer).has_vision is has_vision


def test_the_gate_is_shut_for_a_prompt_of_one_token() -> None:
    prepared = DEFAULT.prepare(rgb(50, 50), "<image>", "tiny", RecordedTokenizer({"": []}))
    last = Inputs(prepared.input_ids[:, -1:], prepared.images_seq_mask[:, -1:], *views_of(prepared))
    assert prepared.has_vision
    assert not last.has_vision


def test_the_gate_asks_for_all_images_together(tokenizer: Tokenizer) -> None:
    """The vendor sums over the whole first sample, so a black page and a white one cancel out."""
    pages = [Image.new("RGB", (512, 512), colour) for colour in ("black", "white")]
    assert not DEFAULT.prepare(pages, "<image> <image>", "tiny", tokenizer).has_vision


def test_moving_leaves_the_spatial_crop_where_it_is(tokenizer: Tokenizer) -> None:
    """The meta device stands for a GPU: it holds no values, so whatever is asked of it there fails."""
    inputs = DEFAULT.prepare(rgb(900, 700), "free", "gundam", tokenizer)
    moved = inputs.to("meta")
    for name in ("input_ids", "images_seq_mask", "images_crop", "images_ori"):
        assert getattr(moved, name).device.type == "meta", name
        assert getattr(moved, name).shape == getattr(inputs, name).shape
    assert moved.images_spatial_crop is inputs.images_spatial_crop
    assert (moved.has_vision, moved.image_tokens) == (True, inputs.image_tokens)


@pytest.mark.parametrize("size", [(700, 600), (1240, 1754)])
def test_crops_of_another_size_than_640_are_refused(size: tuple[int, int], tokenizer: Tokenizer) -> None:
    with pytest.raises(DsocrError, match=r"image tokens, mine asks for \d+ and vision will give \d+ features"):
        DEFAULT.prepare(rgb(*size), "free", Preset("mine", 1024, 768, crop=True), tokenizer)


def test_a_small_page_needs_no_crops_of_640(tokenizer: Tokenizer) -> None:
    inputs = DEFAULT.prepare(rgb(600, 500), "free", Preset("mine", 1024, 768, crop=True), tokenizer)
    assert inputs.image_tokens == 273


def views_of(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return inputs.images_spatial_crop, inputs.images_crop, inputs.images_ori


def test_pixels_of_every_level() -> None:
    """Channels first, and each level the float32 that the chain of float32 operations gives, then rounded to bf16."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    page = Image.fromarray(np.dstack([ramp, ramp[::-1], ramp.T]))
    [levels] = pixels([page])
    half, white = np.float32(0.5), np.float32(255)
    expected = torch.tensor([(np.float32(value) / white - half) / half for value in range(256)])
    assert levels.shape == (3, 16, 16)
    assert levels.dtype == torch.bfloat16
    assert torch.equal(levels[0].flatten(), expected.to(torch.bfloat16))
    assert torch.equal(levels[1], levels[0].flip(0))
    assert torch.equal(levels[2], levels[0].T)
