"""Presets of a user's own: the vendor's ``infer`` takes any sizes, and makes tokens and views of them."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .hints import hinted
from .own_presets import OWN_PAGES, OWN_PRESETS

SIZES = (
    "that base_size and image_size are taken as they are given, and no preset of the model card for them; a side of S "
    "px gives ceil(S / 64) tokens in a row, and crops are 640 px wide whatever they are"
)

pytestmark = pytest.mark.dsocr_level("L1")


@pytest.mark.parametrize("preset", OWN_PRESETS, ids=lambda preset: preset.name)
@pytest.mark.parametrize("page", OWN_PAGES)
def test_inputs(
    page: str,
    preset: Preset,
    facts: Facts,
    asked: Asked,
    drawn: Drawn,
    tokenizer: TextTokenizer,
    dsocr_check: Check,
) -> None:
    from .pixels import compare_pixels

    actual, recorded = asked(drawn(page), preset), facts.prepared(page, preset.name)
    tokens = sum(length for value, length in recorded.images_seq_mask if value)
    sizes = f"where the page's view is {preset.view_size} px wide"
    found = [
        *(
            facts.told(compare_pixels(what, asked, drawn(page), preset, recorded, tokenizer))
            for what in reversed(PIXELS)
            if what != "images_crop" or preset.crop
        ),
        as_expected("images_spatial_crop", actual.images_spatial_crop, recorded.images_spatial_crop, sizes),
        as_expected("input_ids/image", actual.prompt_ids.count(tokenizer.special.image), tokens, sizes),
    ]
    dsocr_check([hinted(one, lambda: iter([SIZES])) for one in found])
