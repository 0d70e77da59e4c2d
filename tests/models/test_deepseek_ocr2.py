"""DeepSeek-OCR-2 as a family: its config, views and tokens, the tower and its mask, and what computes it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.main import main
from pytest_dsocr.contract.presets import image_token_count
from pytest_dsocr.cost.model import parameters
from pytest_dsocr.describe.attention import describe_block
from pytest_dsocr.describe.block import Block
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.engine.weights import INDEX
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr2.model import DeepseekOCR2
from pytest_dsocr.models.deepseek_ocr2.qwen2 import Tower
from pytest_dsocr.models.deepseek_ocr2.sizes import sizes_of
from tests.cost.full_size import counted

OWN = MODELS["deepseek_ocr2"]
TINY = "deepseek_ocr2:synthetic:tiny"
PUBLISHED = OWN.synthetic["full"]
VISION = {
    "image_size": 1024,
    "mlp_ratio": 3.7362,
    "model_name": "deepencoderv2",
    "model_type": "vision",
    "width": {
        "qwen2-0-5b": {"dim": 896},
        "sam_vit_b": {
            "downsample_channels": [512, 1024],
            "global_attn_indexes": [2, 5, 8, 11],
            "heads": 12,
            "layers": 12,
            "width": 768,
        },
    },
}
"""Published ``vision_config``, with 1024 channels where the code builds 896."""
NAMES_SHA256 = "82f945d7251cf783a2bdbfc72c5ee8a1dbae4aa6e3cbd7340de0b9a9b4d7aade"
"""Hash of the sorted names in the published index's weight map, one on each line."""
TOO_MANY_BYTES = 1_010_688
"""Excess of the published index's ``total_size``."""
PAGE_PX = (1000, 500)


@pytest.fixture(scope="module")
def engine() -> Engine[Any]:
    return Engine.from_checkpoint(TINY)


@pytest.fixture(scope="module")
def page() -> Image.Image:
    return Image.linear_gradient("L").resize(PAGE_PX).convert("RGB")


@pytest.fixture(scope="module")
def fused(engine: Engine[Any], page: Image.Image) -> Tensor:
    return engine.pipeline.vision(engine.prepare(page, preset="gundam"))[0].vision_fusion


def config(**changes: Any) -> dict[str, Any]:
    return {**Architecture(OWN, *PUBLISHED).to_config(), "vision_config": VISION, **changes}


def test_the_published_config_is_the_full_model() -> None:
    arch = Architecture.from_config(config())
    assert arch == Architecture(OWN, *PUBLISHED)
    with torch.device("meta"):
        state = DeepseekOCR2(arch).state_dict()
    assert hashlib.sha256("\n".join(sorted(state)).encode()).hexdigest() == NAMES_SHA256
    assert sum(tensor.numel() for tensor in state.values()) == sum(parameters(arch).values()) == 3_389_119_360
    assert state["model.sam_model.net_3.weight"].shape == (896, 512, 3, 3)


def test_vision_config_says_which_model_it_is_if_no_class_does() -> None:
    assert Architecture.from_config(config(architectures=[])).family is OWN
    with pytest.raises(DsocrError, match=r"of DeepSeek-OCR \(.*the vision_config of DeepSeek-OCR-2 \(deepencoderv2\)"):
        Architecture.from_config(config(architectures=[DEEPSEEK_OCR.vendor.architecture]))
    others: tuple[dict[str, Any], ...] = (
        {"architectures": ["JinaOCRForCausalLM"]},
        {"architectures": [], "vision_config": {}},
    )
    for other in others:
        with pytest.raises(DsocrError, match="is of no model that is known"):
            Architecture.from_config(config(**other))
    narrow = {**VISION, "width": {**VISION["width"], "qwen2-0-5b": {"dim": 900}}}  # type: ignore[dict-item]
    with pytest.raises(DsocrError, match="the tower's heads divide its width"):
        Architecture.from_config(config(vision_config=narrow))


def test_an_exported_folder_is_the_same_model_whatever_the_index_says_of_its_size(tmp_path: Path) -> None:
    assert main(["export", TINY, "--to=hf", str(tmp_path / "hf")]) == 0
    index = json.loads((tmp_path / "hf" / INDEX).read_text(encoding="utf-8"))
    index["metadata"]["total_size"] += TOO_MANY_BYTES
    (tmp_path / "hf" / INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert architecture_of(tmp_path / "hf") == architecture_of(TINY)
    loaded, own = (model_of(Engine.from_checkpoint(name)).state_dict() for name in (str(tmp_path / "hf"), TINY))
    assert all(torch.equal(tensor, own[name]) for name, tensor in loaded.items())


@pytest.mark.parametrize(
    ("width_px", "height_px", "grid", "tokens"),
    [
        (2480, 3508, (2, 3), 1121),
        (3508, 2480, (3, 2), 1121),
        (1920, 1080, (2, 1), 545),
        (1280, 720, (2, 1), 545),
        (1280, 1024, (2, 2), 833),
        (1500, 1500, (2, 2), 833),
        (769, 768, (2, 2), 833),
        (768, 768, (1, 1), 257),
        (700, 700, (1, 1), 257),
        (5000, 600, (6, 1), 1121),
    ],
)
def test_a_page_is_cut_into_up_to_six(width_px: int, height_px: int, grid: tuple[int, int], tokens: int) -> None:
    preset = OWN.preset("gundam")
    assert preset.grid(width_px, height_px) == grid
    assert image_token_count(preset, grid) == tokens
    assert [image_token_count(OWN.preset(name), (1, 1)) for name in ("base", "small", "lossy640")] == [257, 145, 257]
    assert [OWN.preset(name).is_squashed for name in ("gundam", "base", "small")] == [False, False, True]


@pytest.mark.parametrize("side_px", [512, 640, 719, 784, 975, 1040, 1280])
def test_a_view_without_queries_is_refused(side_px: int, engine: Engine[Any]) -> None:
    taken = [OWN.preset(replace(OWN.preset("base"), image_size=px)).view_size for px in (720, 783, 976, 1039)]
    assert taken == [720, 783, 976, 1039]
    with pytest.raises(DsocrError, match=f"at {side_px} px, .*144 or 256: give a view of 768 or 1024 pixels"):
        OWN.preset(replace(OWN.preset("base"), image_size=side_px))
    with pytest.raises(DsocrError, match="queries for 144 or 256"):
        model_of(engine).get_submodule("model.qwen2_model")(torch.zeros(1, 48, 10, 10))


def test_the_vendors_default_loses_the_last_features(engine: Engine[Any], page: Image.Image, fused: Tensor) -> None:
    assert image_token_count(OWN.preset("lossy640"), (3, 2)) == 857
    inputs = engine.prepare(page, preset="lossy640")
    [vision] = engine.pipeline.vision(inputs)
    assert (len(fused), inputs.image_tokens) == (2 * 144 + 257, 2 * 100 + 257)
    assert torch.equal(vision.vision_fusion, fused[: inputs.image_tokens])
    with torch.no_grad():
        assert torch.equal(Clean(engine, inputs).fused, vision.vision_fusion)
    other = replace(OWN.preset("gundam"), image_size=576)
    with pytest.raises(DsocrError, match="the prompt has 419 image tokens"):
        engine.prepare(page, preset=other)


@pytest.fixture
def tower(engine: Engine[Any]) -> Tower:
    found = model_of(engine).get_submodule("model.qwen2_model")
    assert isinstance(found, Tower)
    return found


def test_image_tokens_see_all_of_the_image_and_no_query_a_later_one(tower: Tower) -> None:
    torch.manual_seed(0)
    given = torch.randn(1, 24, 48)
    first, last, query = (given.clone() for _ in range(3))
    first[0, 0], last[0, 11], query[0, 17] = 1.0, 1.0, 1.0
    layers = tower.model.model
    with torch.no_grad():
        unchanged = layers(given)[0]
        changed = [(layers(one)[0] != unchanged).any(dim=-1) for one in (first, last, query)]
    assert changed[0].all()
    assert changed[1].all()
    assert changed[2].tolist() == [False] * 17 + [True] * 7


def test_the_towers_frequencies_are_rounded_as_the_decoders() -> None:
    def of(dtype: torch.dtype, *, round_rope: bool) -> Tensor:
        model = DeepseekOCR2.empty(architecture_of(TINY), eager, torch.device("cpu"), dtype, round_rope=round_rope)
        return model.model.qwen2_model.model.model.inv_freq

    exact = of(torch.float32, round_rope=True)
    assert torch.allclose(exact, 1e6 ** (-torch.arange(0, 8, 2) / 8))
    assert torch.equal(of(torch.bfloat16, round_rope=True), exact.bfloat16())
    assert torch.equal(of(torch.bfloat16, round_rope=False), exact)


def test_the_fast_engine_computes_the_same(engine: Engine[Any], page: Image.Image) -> None:
    fast = Engine.from_checkpoint(TINY, engine="fast")
    inputs = engine.prepare(page, preset="small")
    [own], [found] = (one.pipeline.vision(inputs) for one in (engine, fast))
    assert all(torch.equal(tensor, found.seams[name]) for name, tensor in own.seams.items())
    tokens = [one.run_prepared(inputs, max_new_tokens=6).token_ids for one in (engine, fast)]
    assert tokens[0] == tokens[1]


def test_products_of_a_page(engine: Engine[Any], page: Image.Image) -> None:
    counted(engine, page, "small", 2, "cpu", dtype="float32")


@pytest.mark.parametrize(
    ("kind", "words"), [("mask", "as in a causal mask"), ("heads", "repeated all together, not one by one")]
)
def test_a_wrong_block_is_described(kind: str, words: str, tower: Tower, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    given, layers = torch.randn(1, 24, 48), tower.model.model
    with torch.no_grad():
        rope, mask = layers.block_arguments(given)
        block: Any = layers.layers[1]
        right, other = block(given, rope, mask), mask.min().expand(24, 24).triu(1)
        if kind == "heads":
            monkeypatch.setattr(
                "pytest_dsocr.models.deepseek_ocr2.qwen2.repeat_heads", lambda k, q: k.repeat(1, 3, 1, 1)
            )
        gave = block(given, rope, mask if kind == "heads" else other)
        taken = Block(block, given, rope.inverse_frequencies, mask == 0)
        found = describe_block(taken, pair_of(gave, right, channels_last=True))
    assert found is not None
    assert (found.kind, found.explains) == (kind, True), found.text
    assert words in found.text


def test_small_sizes_are_the_towers() -> None:
    sizes = sizes_of(architecture_of(TINY))
    assert sizes.sam.downsample_channels == (24, sizes.tower.dim)
