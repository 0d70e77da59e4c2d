"""DeepSeek-OCR-2's engine against its vendor's real ``infer``: to the bit in float32, on pages of every kind."""

from pathlib import Path

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import DEFAULT_SEED
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary
from pytest_dsocr.engine.vendor_model import vendor_model
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr2.model import DeepseekOCR2
from pytest_dsocr.models.deepseek_ocr2.sizes import DeepEncoder2, TowerConfig
from pytest_dsocr.models.deepseek_ocr2.vendor import probe_mask
from pytest_dsocr.reference.vendor_code.runtime import VendorRuntime
from suites.contract.pages import LARGER_PAGES
from tests.vendor_live.conftest import vendor_folder
from tests.vendor_live.published import check_published_config
from tests.vendor_live.to_the_bit import PAGE_NAMES, Pair, assert_equal_to_the_bit, case_of, load

OWN = MODELS["deepseek_ocr2"]
GUNDAM, NEW_TOKENS = OWN.presets["gundam"], 20
VISIBLE = [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


ENCODER = DeepEncoder2.of(
    SamConfig(width=16, layers=2, heads=1, global_attn_indexes=(1,), neck_channels=8, downsample_channels=(12, 48)),
    TowerConfig(dim=48, layers=2, heads=6, key_value_heads=2, intermediate_size=96),
)
"""Small encoder; SAM has one head, since its attention over 4,096 places costs more than all else."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    arch, folder = Architecture(OWN, ENCODER, OWN.synthetic["tiny"][1]), tmp_path_factory.mktemp("narrow")
    model = DeepseekOCR2.empty(arch, eager, torch.device("cpu"), torch.float32)
    fill(model, DEFAULT_SEED)
    write_checkpoint(folder, arch, model.state_dict(), byte_level_vocabulary(arch.decoder.vocab_size))
    return load(str(folder), OWN)


ALL = [
    *((page, GUNDAM) for page in (*PAGE_NAMES, *LARGER_PAGES)),
    *(("landscape", one) for one in OWN.presets.values() if one is not GUNDAM),
]


@pytest.mark.parametrize(("page", "preset"), ALL, ids=lambda one: getattr(one, "name", one))
def test_a_page_is_read_as_by_the_vendor(pair: Pair, page: str, preset: Preset, tmp_path: Path) -> None:
    case = case_of(page, preset, NEW_TOKENS, tmp_path, OWN)
    assert_equal_to_the_bit(pair.engine, case, pair.vendor.observe(case, keep_values=True))


def test_vendors_object_behind_the_engine(pair: Pair, tmp_path: Path) -> None:
    case = case_of("portrait", OWN.presets["small"], 40, tmp_path, OWN)
    expected = pair.vendor.observe(case, keep_values=True)
    assert_equal_to_the_bit(Engine(vendor_model(pair.vendor.model), pair.engine.tokenizer), case, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_mask_is_the_vendors(pair: Pair, dtype: torch.dtype) -> None:
    decoder = pair.vendor.model.model.qwen2_model.model
    assert probe_mask(decoder.to(dtype)).int().tolist() == VISIBLE
    decoder.to(torch.float32)


MASKS = {
    "image token 0 does not see the last one$": lambda mask: mask.tril() + torch.full_like(mask, mask.min()).triu(1),
    "image tokens see queries; query 0 sees query 1$": lambda mask: 0 * mask,
    "queries do not see the image and the queries before them$": lambda mask: mask + mask.min() * torch.eye(4).flip(0),
}


@pytest.mark.parametrize("words", MASKS)
def test_another_mask_is_no_reference(pair: Pair, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tower = pair.vendor.model.model.qwen2_model.model.model
    own = tower._create_custom_4d_mask
    monkeypatch.setattr(tower, "_create_custom_4d_mask", lambda **how: MASKS[words](own(**how)))
    message = words.replace("$", "; it is no reference")
    with pytest.raises(DsocrError, match=f"has another mask here: {message}"):
        pair.vendor.observe(case_of("tiny", OWN.quickest, 1, tmp_path, OWN))


def test_an_override_that_is_never_called_is_no_reference(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """So newer versions of transformers make the mask."""
    tower = pair.vendor.model.model.qwen2_model.model.model
    monkeypatch.setattr(tower, "_update_causal_mask", super(type(tower), tower)._update_causal_mask)
    with pytest.raises(DsocrError, match="image token 0 does not see the last one; it is no reference"):
        vendor_model(pair.vendor.model).check(pair.vendor.model)


def test_the_published_config_is_read_and_written() -> None:
    check_published_config(OWN)


def test_another_familys_checkpoint_is_refused() -> None:
    with pytest.raises(DsocrError, match=r"checkpoint of DeepSeek-OCR, and the vendor's folder has .* DeepSeek-OCR-2;"):
        VendorRuntime.load(vendor_folder(OWN), "synthetic:tiny")
