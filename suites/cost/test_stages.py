"""FLOPs of vision and prefill for every grid, every preset and several prompts."""

import pytest

from pytest_dsocr.contract.prompt import locate
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.plugin.check import Check

from ..contract.asked import sizes_of
from .flops import FREE, Scales, prefill_of, vision_of

pytestmark = [pytest.mark.dsocr_perf, pytest.mark.dsocr_level("L2")]

GRIDS = [*((columns, rows) for columns in (1, 2, 3) for rows in (1, 2, 3)), (4, 2), (1, 9), (9, 1)]
LOCATED = locate("the total of all items")


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: "{}x{}".format(*grid))
def test_grid(grid: tuple[int, int], scales: Scales, dsocr_check: Check) -> None:
    """Compare a page in Gundam that is exactly as large as its crops."""
    _check(
        (DEEPSEEK_OCR.tiling.crop_px * grid[0], DEEPSEEK_OCR.tiling.crop_px * grid[1]),
        FREE,
        "gundam",
        scales,
        dsocr_check,
    )


@pytest.mark.parametrize("preset", [name for name, preset in DEEPSEEK_OCR.presets.items() if not preset.crop])
def test_preset(preset: str, scales: Scales, dsocr_check: Check) -> None:
    """Compare a page in a preset without crops."""
    _check((300, 700), FREE, preset, scales, dsocr_check)


@pytest.mark.parametrize("prompt", [*DEEPSEEK_OCR.prompts.values(), LOCATED], ids=[*DEEPSEEK_OCR.prompts, "locate"])
def test_prompt(prompt: str, scales: Scales, dsocr_check: Check) -> None:
    """Compare a prompt in Tiny, the quickest preset."""
    _check((512, 512), prompt, "tiny", scales, dsocr_check)


def _check(page_px: tuple[int, int], prompt: str, preset: str, scales: Scales, dsocr_check: Check) -> None:
    counted = scales.begin(page_px, prompt, sizes_of(preset, scales.arch.family))
    dsocr_check([*vision_of(scales.arch, counted), prefill_of(scales.arch, counted)])
