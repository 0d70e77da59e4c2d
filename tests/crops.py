"""Crops at a tenth of what ``gundam`` costs: two of the page ``landscape``, and the whole of it seen small."""

from pathlib import Path

from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from suites.contract.asked import own_preset
from suites.contract.pages import write_page

CROPS = own_preset("crops", 256, 640, crop=True)
"""A crop is 640 px wide in any preset; the whole page is what can be smaller."""
CROPPED = "landscape"
"""The page that has the fewest crops."""


def cropped_case(folder: Path, prompt: str, max_new_tokens: int) -> Case:
    """Write a page that is cut into ``folder``."""
    return Case(write_page(CROPPED, folder), DEEPSEEK_OCR.prompts[prompt], CROPS, max_new_tokens, DEEPSEEK_OCR)
