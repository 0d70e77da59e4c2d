"""Prompts: the vendor's ids for twelve texts, among them the model card's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dsocr.contract.special import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .hints import hinted, of_prompt

pytestmark = pytest.mark.dsocr_level("L1")

PROMPTS = (
    *("markdown", "ocr", "free", "figure", "describe", "locate"),
    *("space_after", "space_around", "text_before", "image_last", "image_alone", "not_latin"),
)


@pytest.mark.parametrize("name", PROMPTS)
def test_ids_and_mask(
    name: str, facts: Facts, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    """The ids as they were recorded; in another vocabulary than the vendor's, those of the same pieces of text."""
    import torch

    from pytest_dsocr.compare.inputs import compare_inputs
    from pytest_dsocr.observation.observation import runs

    fact = facts.prompt(name)
    ids = fact.input_ids if facts.is_vocabulary_of(tokenizer) else fact.ids_in(tokenizer)
    row = torch.tensor([ids])
    mine = asked(drawn("square"), "gundam", fact.text)
    theirs = replace(mine, input_ids=runs(row), images_seq_mask=runs(row == tokenizer.special.image))
    told = [
        hinted(facts.told(one), lambda: of_prompt(mine.prompt_ids, fact.text, tokenizer))
        for one in compare_inputs(mine, theirs)
    ]
    dsocr_check(told, "input_ids", "images_seq_mask")
