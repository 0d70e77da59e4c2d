"""The view of the whole page: padded with grey, or squashed without crops and up to 640 px."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.verdict import Comparison, as_expected
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .hints import LARGE, hinted

if TYPE_CHECKING:
    from torch import Tensor

pytestmark = pytest.mark.dsocr_level("L1")

PADDING, WHITE = 127, 255
WIDE_PX, TALL_PX = (1200, 600), (600, 1200)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("page", ["portrait", "landscape", "exactly_640", "tiny"])
def test_every_bit(
    page: str, preset: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from .pixels import compare_pixels

    compared = compare_pixels("images_ori", asked, drawn(page), preset, facts.prepared(page, preset), tokenizer)
    dsocr_check([facts.told(compared)])


@pytest.mark.parametrize("preset", ["tiny", "gundam"])
def test_a_large_page_is_resized_at_once(
    preset: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from .pixels import compare_pixels

    recorded = facts.prepared("panorama", preset)
    compared = compare_pixels("images_ori", asked, drawn("panorama"), preset, recorded, tokenizer)
    dsocr_check([hinted(facts.told(compared), lambda: iter([LARGE]))])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size_px", [WIDE_PX, TALL_PX], ids=["wide", "tall"])
def test_bars_beside_a_white_page(
    size_px: tuple[int, int], preset: str, asked: Asked, drawn: Drawn, dsocr_check: Check
) -> None:
    """Two bars of a quarter each; none where the page is squashed."""
    view = asked.tensors(drawn.blank(*size_px), preset)["images_ori"][0].float().cpu()
    levels = ((view + 1) * 127.5).round().int()
    across = levels.transpose(1, 2) if size_px == TALL_PX else levels
    bar = 0 if PRESETS[preset].is_squashed else PRESETS[preset].view_size // 4
    parts = {"before": across[:, :bar], "after": across[:, across.shape[1] - bar :]}
    bars = [_uniform(f"images_ori/{name}", part, PADDING) for name, part in parts.items() if bar]
    dsocr_check([*bars, _uniform("images_ori/page", across[:, bar : across.shape[1] - bar], WHITE)])


def _uniform(what: str, levels: Tensor, expected: int) -> Comparison:
    found = [int(levels.min()), int(levels.max())]
    return as_expected(what, found, [expected, expected], "lowest and highest level of 255")
