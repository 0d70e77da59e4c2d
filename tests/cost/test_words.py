"""Tokens of a prompt without its tokenizer."""

from __future__ import annotations

import pytest

from pytest_dsocr.cost.words import text_tokens
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("markdown", 9),  # BOS, line break, <|grounding|>, Convert, the, document, to, markdown, full stop
        ("free", 5),
        ("<image>", 1),
        ("<image>\nLocate <|ref|>two words<|/ref|> in the image.", 11),
    ],
)
def test_words_and_marks_are_counted(prompt: str, tokens: int) -> None:
    assert text_tokens(prompt) == tokens
    assert text_tokens(DEFAULT.prompts.get(prompt, prompt)) == tokens


def test_a_prompt_without_its_image_is_refused() -> None:
    with pytest.raises(DsocrError, match="has no <image>"):
        text_tokens("What is it?")
