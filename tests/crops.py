"""Crops at a tenth of what ``gundam`` costs: two of the page ``landscape``, and the whole of it seen small."""

from pathlib import Path

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import Case
from suites.contract.pages import write_page

CROPS = Preset("crops", 256, 640, crop=True)
"""A crop is 640 px wide in any preset; the whole page is what can be smaller."""
CROPPED = "landscape"
"""The page that has the fewest crops."""


def cropped_case(folder: Path, prompt: str, max_new_tokens: int) -> Case:
    """A page that is cut, written into ``folder``."""
    return Case(write_page(CROPPED, folder), DEFAULT.prompts[prompt], CROPS, max_new_tokens)
