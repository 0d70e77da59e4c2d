"""Loading: what the vendor's reader makes of a file's rotation, transparency, palette and levels.

The pages are seen in Tiny and cut in Gundam, so that a view that is loaded otherwise than the crops shows too.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts

pytestmark = pytest.mark.dsocr_level("L1")

PAGES = {
    "exif": "rotated by its EXIF orientation",
    "alpha": "alpha dropped, not composited, so that the colours below it come back",
    "grey_alpha": "alpha dropped",
    "palette": "colours looked up",
    "cmyk": "by Pillow's own conversion",
    "16_bit": "levels clipped at 255, not scaled",
    "grey": "the level in every channel",
    "1_bit": "black and white",
}


@pytest.mark.parametrize("page", PAGES)
def test_loading(
    page: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    from .pixels import compare_pixels

    compared = [
        compare_pixels(views, asked, drawn(page), preset, facts.prepared(page, preset), tokenizer)
        for views, preset in (("images_ori", "tiny"), ("images_crop", "gundam"))
    ]
    dsocr_check(facts.told(_with_rule(one, PAGES[page])) for one in compared)


def _with_rule(compared: Comparison, rule: str) -> Comparison:
    return replace(compared, measured=f"{compared.measured}; the vendor's: {rule}")
