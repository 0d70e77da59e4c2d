"""How many image tokens a page takes: one for each feature, for each row's newline, and for the separator.

``test_crop_grid.py`` counts those of every grid of crops.
"""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .image_tokens import compare_image_tokens

pytestmark = pytest.mark.dsocr_level("L1")

RECORDED = [
    *(("square", preset) for preset in ("tiny", "small", "base", "large")),
    *((page, "gundam") for page in ("tiny", "landscape", "square", "portrait", "palette", "screen")),
]


@pytest.mark.parametrize(("page", "preset"), RECORDED, ids=map("-".join, RECORDED))
def test_image_tokens(
    page: str, preset: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    [(_, expected)] = [run for run in facts.prepared(page, preset).images_seq_mask if run[0]]
    inputs = asked(drawn(page), preset)
    compared = compare_image_tokens(inputs, tokenizer.special.image, expected, f"image tokens in {preset}")
    dsocr_check(map(facts.told, compared))
