"""Inputs against what the vendor's ``infer`` handed to ``generate``, bit for bit; and which inputs are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import global_view
from pytest_dsocr.contract.presets import Preset, crop_grid, feature_count, image_token_count
from pytest_dsocr.contract.prompt import locate, split_at_images
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.reference_result import runs
from suites.contract.asked import OWN_PAGES, OWN_PRESETS, own_preset, recorded_presets, sizes_of
from suites.contract.pages import LARGER_PAGES, PAGES, ZERO_SUM_PAGES, rgb, write_page
from tests.contract.recorded import INPUTS, digest
from tests.recordings import recording_of

PAGES_BY_NAME = {**PAGES, **ZERO_SUM_PAGES}
MANY = MODELS["unlimited_ocr"]
TOGETHER = recording_of("pages", MANY)["together"]
OWN_CROPS = own_preset("mine", 1024, 768, crop=True)
each_family = pytest.mark.parametrize("family", INPUTS, ids=lambda family: family.name)
TWO = [(100, 100), (100, 100)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.byte_level(DEEPSEEK_OCR.vocab_size)


@pytest.fixture(scope="module")
def page_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_page(name, folder) for name in (*PAGES_BY_NAME, *LARGER_PAGES)}


@each_family
def test_all_of_the_family_is_recorded(family: ModelSpec) -> None:
    known, presets, own = INPUTS[family], recorded_presets(family), () if family.tiling.view_tokens else OWN_PRESETS
    recorded = [(case["page"], case["preset"]) for case in known["prepared"]]
    pages = {**PAGES_BY_NAME, **({} if own else LARGER_PAGES)}
    of_pages = {page: [preset.name for preset in own] for page in OWN_PAGES}
    assert recorded == [(page, preset) for page in pages for preset in (*presets, *of_pages.get(page, ()))]
    assert [preset.sizes for preset in (*presets.values(), *own)] == known["provenance"]["presets"]
    prompts = {**DEEPSEEK_OCR.prompts, "locate": locate("the title"), **family.prompts}
    assert prompts.items() <= {case["name"]: case["text"] for case in known["prompts"]}.items()


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("family", "case"),
    [
        pytest.param(one, case, id=f"{one.name}-{case['page']}-{case['preset']}")
        for one in INPUTS
        for case in INPUTS[one]["prepared"]
    ],
)
def test_inputs_are_the_vendors(
    family: ModelSpec, case: dict[str, Any], page_files: dict[str, Path], tokenizer: Tokenizer
) -> None:
    preset = sizes_of({own.name: own for own in OWN_PRESETS}.get(case["preset"], case["preset"]), family)
    inputs = family.prepare(page_files[case["page"]], "markdown", preset, tokenizer)
    actual = digest(inputs.tensors)
    assert actual == {name: case[name] for name in actual}
    if "gate_sum" in case:
        assert inputs.has_vision == (case["gate_sum"] != 0)


@each_family
def test_grids_are_the_vendors(family: ModelSpec) -> None:
    table = INPUTS[family]["grids"]
    assert {tuple(row[2:]) for row in table} - {(1, 1)} == set(family.tiling.grids), "some grid is never chosen"
    assert [[width, height, *crop_grid(width, height, family.tiling)] for width, height, *_ in table] == table


def test_prompt_and_vision_count_the_same_tokens_at_every_size() -> None:
    for size_px in range(16, 2100):
        preset = own_preset("any", size_px, size_px, crop=False)
        assert feature_count(size_px, DEEPSEEK_OCR.tiling.crop_px, (1, 1), DEEPSEEK_OCR.layout) == image_token_count(
            preset, (1, 1)
        ), size_px


@pytest.mark.parametrize("preset", DEEPSEEK_OCR.presets)
def test_several_images_are_their_own_inputs_in_a_row(preset: str, tokenizer: Tokenizer) -> None:
    pages = [rgb(900, 700), rgb(300, 200, seed=2), rgb(1300, 650, seed=3)]
    together = DEEPSEEK_OCR.prepare(pages, "A <image> b <image><image> d", preset, tokenizer)
    alone = [DEEPSEEK_OCR.prepare(page, "<image>", preset, tokenizer) for page in pages]
    assert torch.equal(together.images_ori, torch.cat([one.images_ori for one in alone]))
    assert torch.equal(together.images_spatial_crop, torch.cat([one.images_spatial_crop for one in alone]))
    if preset == "gundam":
        assert torch.equal(together.images_crop, torch.cat([alone[0].images_crop, alone[2].images_crop]))
    image, (first, second, third) = tokenizer.special.image, (one.image_tokens for one in alone)
    text = [tokenizer.encode(piece) for piece in ("A ", " b ", " d")]
    expected = [0, *text[0], *[image] * first, *text[1], *[image] * (second + third), *text[2]]
    assert together.input_ids.tolist() == [expected]
    assert runs(together.images_seq_mask) == runs(together.input_ids == image)


@pytest.mark.parametrize(
    "case", TOGETHER, ids=lambda case: f"{len(case['pages'])}-{case['image_size']}-{case['prompt']}"
)
def test_pages_at_one_place_are_the_vendors(
    case: dict[str, Any], page_files: dict[str, Path], tokenizer: Tokenizer
) -> None:
    """The contract raises an error for pages that the vendor's code fails on or drops silently."""
    preset = own_preset("mine", 512, case["image_size"], crop=False)
    pages = [page_files[name] for name in case["pages"]]
    if case["prompt"].count("<image>") != 1 or not pages:
        assert "error" in case or case["prompt"].count("<image>") > 1
        with pytest.raises(DsocrError, match="give"):
            MANY.prepare(pages, case["prompt"], preset, tokenizer)
        return
    actual = digest(MANY.prepare(pages, case["prompt"], preset, tokenizer).tensors)
    assert actual == {name: case[name] for name in actual}


def test_one_page_by_itself_is_no_list_of_pages(tokenizer: Tokenizer) -> None:
    page = rgb(900, 700)
    alone, plain = (
        family.prepare(page, "<image>", "gundam", tokenizer) for family in (MANY, replace(MANY, pages_prompt=""))
    )
    assert digest(alone.tensors) == digest(plain.tensors)
    assert len(alone.images_crop) > 1


def test_text_only(tokenizer: Tokenizer) -> None:
    inputs = DEEPSEEK_OCR.prepare([], "Hello.", "gundam", tokenizer)
    assert inputs.input_ids.tolist() == [[0, *tokenizer.encode("Hello.")]]
    assert inputs.images_spatial_crop.tolist() == [[0, 0]]
    assert (inputs.images_ori.shape, inputs.images_crop.shape) == ((1, 3, 640, 640), (1, 3, 1024, 1024))
    assert inputs.images_ori.dtype == inputs.images_crop.dtype == torch.float32
    assert (inputs.image_tokens, inputs.has_vision) == (0, False)


def test_the_gate_is_shut_for_a_prompt_of_one_token_and_asks_for_all_images_together(tokenizer: Tokenizer) -> None:
    """The vendor sums over the whole first sample, so a black page and a white one cancel out."""
    one = DEEPSEEK_OCR.prepare(rgb(50, 50), "<image>", "tiny", tokenizer)
    assert one.has_vision
    assert not replace(one, input_ids=one.input_ids[:, -1:], images_seq_mask=one.images_seq_mask[:, -1:]).has_vision
    pages = [Image.new("RGB", (512, 512), colour) for colour in ("black", "white")]
    assert not DEEPSEEK_OCR.prepare(pages, "<image> <image>", "tiny", tokenizer).has_vision


def test_moving_leaves_the_spatial_crop_where_it_is(tokenizer: Tokenizer) -> None:
    """The meta device replaces a GPU here: reading a value on it fails."""
    inputs = DEEPSEEK_OCR.prepare(rgb(900, 700), "free", "gundam", tokenizer)
    moved = inputs.to("meta")
    devices = {name: tensor.device.type for name, tensor in moved.tensors.items()}
    assert devices == {**dict.fromkeys(devices, "meta"), "images_spatial_crop": "cpu"}
    assert (moved.has_vision, moved.image_tokens) == (True, inputs.image_tokens)


def test_a_small_view_beside_crops_is_padded_all_the_same() -> None:
    view = global_view(Image.new("RGB", (1200, 600), "white"), own_preset("mine", 512, 640, crop=True))
    assert view.getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize(
    ("pages", "prompt", "preset", "message"),
    [
        ([(100, 100)], "", "tiny", "the prompt is empty"),
        ([(100, 100)], "markdwon", "tiny", "'markdwon' has no <image>"),
        ([(100, 100)], "<image> <image> two", "tiny", "has 2 <image> placeholders and there are 1 images"),
        ([], "<image> none", "tiny", "has 1 <image> placeholders and there are 0 images"),
        ([(100, 100)], "free", "huge", "'huge'.*tiny, small, base, large, gundam"),
        ([(1240, 1754)], "free", OWN_CROPS, r"mine asks for \d+ and vision will give \d+ features"),
        ([(2048, 1)], "free", "gundam", "2048 x 1 px vanishes in a view of 1024 x 1024"),
        (TWO, "<image> a <image> b", MANY.preset("base"), "2 images; .* one .* for all images"),
        (TWO, "Multi page parsing.", MANY.preset("base"), "has no <image>"),
        (TWO, "<image>", MANY.preset("gundam"), "2 pages in one prompt, gundam; .* a preset without crops"),
        ([], "<image>", MANY.preset("base"), "0 pages in one prompt, base; give one at least"),
    ],
)
def test_what_cannot_be_prepared_is_refused(
    pages: list[tuple[int, int]], prompt: str, preset: str | Preset, message: str, tokenizer: Tokenizer
) -> None:
    family = MANY if preset in MANY.presets.values() else DEEPSEEK_OCR
    with pytest.raises(DsocrError, match=message):
        family.prepare([Image.new("RGB", size) for size in pages], prompt, preset, tokenizer)


def test_what_has_no_size_or_no_words_is_refused() -> None:
    with pytest.raises(DsocrError, match="base_size=15"):
        own_preset("mine", 15, 640, crop=True)
    with pytest.raises(DsocrError, match="0 x 100 has no pixels"):
        crop_grid(0, 100, DEEPSEEK_OCR.tiling)
    with pytest.raises(DsocrError, match="no phrase"):
        locate("  ")
    with pytest.raises(DsocrError, match="2 <image> placeholders"):
        split_at_images(locate("<image>"), 1)
