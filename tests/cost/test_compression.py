"""The figures of the vendor's ``test_compress``; live, they are held in ``tests/vendor_live``."""

from __future__ import annotations

import pytest

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import PRESETS, Preset
from pytest_dsocr.cost.compression import Compression, compression
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped
from tests.cost.compressed import FACTS


def figures(page_px: tuple[int, int], preset: Preset, text_tokens: int = 700) -> Compression:
    return compression(Workload(page_px, preset, 5, 1), text_tokens)


def test_shipped_pages_are_as_recorded() -> None:
    sizes = {page.stem: load_image(page).size for page in shipped("all") if page.stem in FACTS}
    assert sizes.keys() == FACTS.keys()
    found = {
        name: tuple(figures(size, preset).valid_image_tokens for preset in PRESETS.values())
        for name, size in sizes.items()
    }
    assert found == FACTS


def test_the_ratio_has_two_places() -> None:
    assert figures((1140, 1101), PRESETS["gundam"], 1000).ratio == 1.55
    assert figures((1140, 1101), PRESETS["tiny"], 1000).ratio == 15.62


def test_where_the_vendor_divides_by_zero_it_is_told() -> None:
    uncounted = figures((600, 600), Preset("of their own", 768, 768, crop=False))
    assert uncounted.valid_image_tokens == 0
    with pytest.raises(DsocrError, match="give a base_size of 1024, 1280, 640, 512"):
        uncounted.ratio  # noqa: B018 - it is asked for


def test_crops_of_another_size_are_not_counted() -> None:
    assert figures((1280, 1280), Preset("of their own", 1024, 512, crop=True)).valid_image_tokens == 256
    assert figures((1280, 1280), PRESETS["gundam"]).valid_image_tokens == 256 + 4 * 100
