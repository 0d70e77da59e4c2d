"""Prompts: the vendor's ids for twelve texts, among them the model card's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dsocr.compare.verdict import as_expected
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.plugin.check import Check

from .asked import Asked, Drawn
from .facts import Facts
from .hints import hinted, of_prompt

pytestmark = pytest.mark.dsocr_level("L1")

PROMPTS = (
    *("markdown", "ocr", "free", "figure", "describe", "locate"),
    *("space_after", "space_around", "text_before", "image_last", "image_alone", "not_latin"),
)

UNUSUAL = {
    "runs of blanks": "\nRead  all   of this.",
    "runs of line ends": "\n\nFirst.\n\n\nSecond.",
    "capitals and marks": "\nOCR: “ﬁne”, naïve & R&amp;D?!",
    "special tokens": "\nLocate <|ref|>a word<|/ref|> in the image.",
}
"""Texts that a server might tidy."""


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
    actual = asked(drawn("square"), "gundam", fact.text)
    expected = replace(actual, input_ids=runs(row), images_seq_mask=runs(row == tokenizer.special.image))
    told = [
        hinted(facts.told(one), lambda: of_prompt(actual.prompt_ids, fact.text, tokenizer))
        for one in compare_inputs(actual, expected)
    ]
    dsocr_check(told, "input_ids", "images_seq_mask")


@pytest.mark.parametrize("kind", UNUSUAL)
def test_the_text_is_not_tidied(
    kind: str, asked: Asked, drawn: Drawn, tokenizer: TextTokenizer, dsocr_check: Check
) -> None:
    """What stands behind the image are the ids of the text as it was given, in the checkpoint's vocabulary."""
    actual = asked(drawn("tiny"), "tiny", f"<image>{UNUSUAL[kind]}").prompt_ids
    behind = [one for one in actual[1:] if one != tokenizer.special.image]
    why = f"the prompt's text as it was given: {kind} are kept, and nothing is escaped"
    dsocr_check([as_expected("input_ids/text", behind, tokenizer.encode(UNUSUAL[kind]), why)])
