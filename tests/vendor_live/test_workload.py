"""The arithmetic against the vendor's real ``infer``, module by module: grids, presets, prompts, lengths.

The vendor's code has no attention but ``eager`` on the CPU, and reads one page at a time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pytest_dsocr.cost.cost import by_module, with_those_around
from pytest_dsocr.cost.decoder import VENDOR
from pytest_dsocr.cost.model import decode_step, parameters, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.perf.probe.flops import counted_flops
from pytest_dsocr.reference.vendor_code.observe import observe_infer
from pytest_dsocr.reference.vendor_code.runtime import FLOP_TOKENS, VendorRuntime
from tests.cost.full_size import apart
from tests.vendor_live.conftest import vendor_folder

CHECKPOINT = "synthetic:tiny"
GRIDS = [*((columns, rows) for columns in (1, 2, 3) for rows in (1, 2, 3)), (1, 9), (9, 1), (2, 4)]
PAGES = {
    **{
        f"gundam {columns}x{rows}": (
            (DEFAULT.tiling.crop_px * columns, DEFAULT.tiling.crop_px * rows),
            "free",
            "gundam",
            2,
        )
        for columns, rows in GRIDS
    },
    **{name: ((300, 700), "free", name, 2) for name, preset in DEFAULT.presets.items() if not preset.crop},
    **{f"prompt {name}": ((300, 700), name, "tiny", 2) for name in DEFAULT.prompts},
    "30 tokens": ((300, 700), "free", "tiny", 30),
}
"""Size, prompt, preset, and a ceiling of the tokens that are written."""

pytestmark = pytest.mark.filterwarnings("ignore")  # the vendor's code warns on every recent torch


@pytest.fixture(scope="module")
def vendor() -> VendorRuntime:
    return VendorRuntime.load(vendor_folder(), CHECKPOINT)


@pytest.mark.parametrize("page", PAGES)
def test_every_module_is_as_counted(vendor: VendorRuntime, page: str, tmp_path: Path) -> None:
    size, prompt, preset, tokens = PAGES[page]
    Image.new("RGB", size, "white").save(tmp_path / "page.png")
    case = make_case(tmp_path / "page.png", prompt, preset, tokens)
    checkpoint = resolve(CHECKPOINT)
    names = with_those_around(parameters(checkpoint.architecture))
    modules = {name: module for name, module in vendor.model.named_modules() if name in names}
    with counted_flops(modules) as found:
        run = observe_infer(
            vendor.model, vendor.tokenizer, case, tmp_path / "out", image_id=vendor.image_id, keep_tensors=False
        )
    assert len(run.token_ids) == tokens, "it ended before, so this tells less than it says"
    work = Workload.of_prompt(size, prompt, preset, checkpoint.tokenizer, generated_tokens=tokens)
    stages = stages_of(checkpoint.architecture, work, way=VENDOR)
    assert not apart(by_module(stages.values()), found)
    assert {"model.layers.1.self_attn", "model.vision_model.transformer.layers.1", "lm_head"} <= found.modules.keys()
    assert not found.unknown


@pytest.mark.parametrize("preset", ["gundam", "base"])
def test_stages_are_as_the_reference_counts_them(vendor: VendorRuntime, preset: str, tmp_path: Path) -> None:
    Image.new("RGB", (1400, 900), "white").save(tmp_path / "page.png")
    checkpoint = resolve(CHECKPOINT)
    work = Workload.of_prompt((1400, 900), "free", preset, checkpoint.tokenizer, generated_tokens=FLOP_TOKENS)
    stages = stages_of(checkpoint.architecture, work, way=VENDOR)
    step = decode_step(checkpoint.architecture, work, work.prompt_tokens + 1, way=VENDOR)
    assert step.layers == stages["decode"].layers
    expected = {stage: cost.cost.matrix_flops for stage, cost in stages.items() if stage != "vision_fusion"}
    assert vendor.flops(make_case(tmp_path / "page.png", "free", preset, FLOP_TOKENS)) == expected
