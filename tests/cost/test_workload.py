"""Tests of workloads: tokens of prompts, the vendor's compression figures, and pages by their grids."""

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.cost.workload import Workload, valid_image_tokens
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from suites.contract.asked import own_preset
from tests.sizes import SYNTHETIC

FULL = SYNTHETIC["full"]
FACTS = {
    "invoice_016": (64, 100, 247, 386, 647),
    "receipt_086": (64, 100, 130, 203, 330),
    "figures_201": (64, 100, 227, 355, 227),
}
"""Valid image tokens that the vendor's ``test_compress`` told of three pages, in the order of the presets."""


def shown(page_px: tuple[int, int], preset: Preset) -> int:
    return valid_image_tokens(Workload(page_px, preset, 5, 1), DEEPSEEK_OCR)


def test_image_tokens_that_show_a_page_are_as_recorded() -> None:
    sizes = {page.stem: load_image(page).size for page in shipped("all") if page.stem in FACTS}
    found = {
        name: tuple(shown(size, preset) for preset in DEEPSEEK_OCR.presets.values()) for name, size in sizes.items()
    }
    assert found == FACTS
    assert shown((1280, 1280), own_preset("of their own", 1024, 512, crop=True)) == 256
    assert shown((600, 600), own_preset("of their own", 768, 768, crop=False)) == 0
