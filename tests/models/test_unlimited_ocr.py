"""Unlimited-OCR as a family: how it cuts pages, how a checkpoint is taken for it, and how it decodes."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.cli.vendor_pages import found_by
from pytest_dsocr.contract.policy import CachePolicy
from pytest_dsocr.contract.presets import image_token_count
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI_FOLDER, architecture_of, family_named
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from suites.contract.asked import own_preset
from suites.contract.pages import PAGES
from tests.sizes import SYNTHETIC

OWN = MODELS["unlimited_ocr"]
TINY = "unlimited_ocr:synthetic:tiny"


@pytest.mark.parametrize(
    ("width_px", "height_px", "grid", "tokens"),
    [(2480, 3508, (4, 6), 2733), (1240, 1754, (2, 3), 903), (1920, 1080, (7, 4), 3113), (640, 20480, (1, 32), 3793)],
)
def test_a_page_is_cut_into_up_to_32(width_px: int, height_px: int, grid: tuple[int, int], tokens: int) -> None:
    preset = OWN.preset("gundam")
    assert preset.grid(width_px, height_px) == grid
    assert image_token_count(preset, grid) == tokens
    assert (OWN.preset("base").view_size, OWN.preset("base").crop, [*OWN.presets]) == (1024, False, ["gundam", "base"])


def written(folder: Path, **config: Any) -> Path:
    found = json.loads((MINI_FOLDER / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(found | config), encoding="utf-8")
    return folder


def test_architectures_and_not_the_type_say_which_model_it_is(tmp_path: Path) -> None:
    assert Architecture.from_folder(written(tmp_path, model_type="unlimited-ocr")).family is DEEPSEEK_OCR
    named = written(tmp_path, architectures=["UnlimitedOCRForCausalLM"], sliding_window_size=128)
    assert architecture_of(named).family is OWN
    assert architecture_of(f"deepseek_ocr:{named}").family is DEEPSEEK_OCR
    with pytest.raises(DsocrError, match=r"JinaOCRForCausalLM is of no model that is known .*--dsocr-model="):
        architecture_of(written(tmp_path, architectures=["JinaOCRForCausalLM"]))


def test_a_ring_of_its_own_is_read_and_written(tmp_path: Path) -> None:
    other = replace(SYNTHETIC["tiny"], family=OWN.with_ring(8))
    (tmp_path / "config.json").write_text(json.dumps(other.to_config()), encoding="utf-8")
    found = Architecture.from_folder(tmp_path)
    assert (found.family.name, found.family.cache) == ("unlimited_ocr", CachePolicy(ring=8))
    assert "sliding_window" not in json.dumps(SYNTHETIC["tiny"].to_config())


def test_any_checkpoints_weights_may_be_taken_for_it(tmp_path: Path) -> None:
    mini = resolve("unlimited_ocr:mini")
    assert (mini.architecture.family, mini.label) == (OWN, "unlimited_ocr:mini")
    assert mini.sha256 != resolve("mini").sha256, "what is recorded of one model is not the other's"
    assert family_named(TINY) is OWN
    assert architecture_of(TINY).decoder.max_position_embeddings == 32768
    assert resolve(f"unlimited_ocr:{MINI_FOLDER}").label == "unlimited_ocr:mini"


def test_prompt_and_output_together_have_the_limit() -> None:
    engine = Engine.from_checkpoint(TINY)
    inputs = [engine.prepare(PAGES["tiny"](), preset=own_preset("view", side, side, False)) for side in (320, 256)]
    prompts = [one.prompt_tokens for one in inputs]
    assert (engine.policy.max_length, engine.policy.no_repeat_ngram_size) == (32768, 0)
    results = engine._read(inputs, replace(engine.policy, max_length=prompts[0] + 3))
    assert [len(result.token_ids) for result in results] == [3, 3 + prompts[0] - prompts[1]] == [3, 13]
    assert {result.finish_reason for result in results} == {"length"}


def test_its_own_prompts_crops_and_limit_are_recorded() -> None:
    asked: dict[str, Any] = {"prompts": ["markdown"], "presets": ["gundam"], "max_new_tokens": None}
    cases = found_by(Namespace(pages=["dev-3"], checkpoint="unlimited_ocr:mini", **asked)).good
    found = {(case.prompt, case.preset.tiling.most, case.max_new_tokens) for case in cases}
    assert found == {("<image>document parsing.", 32, 32768)}
