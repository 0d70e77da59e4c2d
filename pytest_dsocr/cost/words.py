"""How many tokens a prompt takes where no tokenizer is at hand."""

from __future__ import annotations

import re

from pytest_dsocr.contract.prompt import split_at_images

TOKEN = re.compile(r"<\|[^|]*\|>|\w+|[^\w ]")
"""A special token, a word, a mark or a line break."""


def text_tokens(prompt: str) -> int:
    """Count the words and marks of a prompt for one page, and BOS: right where a vocabulary has each of its words.

    Raises:
        DsocrError: where the prompt is empty, or has not one ``<image>``.
    """
    return 1 + sum(len(TOKEN.findall(piece)) for piece in split_at_images(prompt, 1))
