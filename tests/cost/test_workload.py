"""How much work pages are: tokens of prompts, the vendor's figures of compression, and pages by their grids."""

from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.cost import roofline
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.roofline import priced
from pytest_dsocr.cost.workload import Workload, text_tokens, valid_image_tokens
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped

FULL = SYNTHETIC["full"]
FACTS = {
    "invoice_016": (64, 100, 247, 386, 647),
    "receipt_086": (64, 100, 130, 203, 330),
    "figures_201": (64, 100, 227, 355, 227),
}
"""Valid image tokens that the vendor's ``test_compress`` told of three pages, in the order of the presets."""


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("markdown", 9),  # BOS, line break, <|grounding|>, Convert, the, document, to, markdown, full stop
        ("free", 5),
        ("<image>", 1),
        ("<image>\nLocate <|ref|>two words<|/ref|> in the image.", 11),
    ],
)
def test_words_and_marks_of_a_prompt_are_counted(prompt: str, tokens: int) -> None:
    assert text_tokens(prompt) == text_tokens(DEFAULT.prompts.get(prompt, prompt)) == tokens
    with pytest.raises(DsocrError, match="has no <image>"):
        text_tokens("What is it?")


def shown(page_px: tuple[int, int], preset: Preset) -> int:
    return valid_image_tokens(Workload(page_px, preset, 5, 1))


def test_image_tokens_that_show_a_page_are_as_recorded() -> None:
    sizes = {page.stem: load_image(page).size for page in shipped("all") if page.stem in FACTS}
    found = {name: tuple(shown(size, preset) for preset in DEFAULT.presets.values()) for name, size in sizes.items()}
    assert found == FACTS
    assert shown((1280, 1280), Preset("of their own", 1024, 512, crop=True)) == 256
    assert shown((600, 600), Preset("of their own", 768, 768, crop=False)) == 0


def works(preset: str = "gundam") -> Iterator[tuple[str, Workload]]:
    for path in shipped("all"):
        yield path.name, Workload(load_image(path).size, DEFAULT.presets[preset], 9, 64)


def test_pages_of_one_grid_are_calculated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = priced(FULL, works())
    assert len(pages) == len(shipped("all"))
    assert all(page.stages == stages_of(FULL, page.work) for page in pages)
    calculated = MagicMock(side_effect=stages_of)
    monkeypatch.setattr(roofline, "stages_of", calculated)
    assert priced(FULL, works()) == pages
    assert calculated.call_count == len({page.work.grid for page in pages}) < len(pages)
    assert len({page.cost for page in priced(FULL, works("base"))}) == 1, "without crops all pages cost the same"
