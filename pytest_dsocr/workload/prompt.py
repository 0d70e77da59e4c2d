"""How many tokens a prompt's text takes: by its tokenizer, or, where none is at hand, by its words."""

from __future__ import annotations

import re

from pytest_dsocr.contract.prompt import split_at_images
from pytest_dsocr.contract.special import TextTokenizer

WORD = re.compile(r"<\|[^|]*\|>|\w+|[^\w ]")
"""What counts as a token where there is no tokenizer: a special token, a word, a mark, a line break."""


def text_tokens(prompt: str, tokenizer: TextTokenizer | None = None) -> int:
    """Count the tokens of a prompt for one page that are not the image's, BOS among them.

    Without a tokenizer the words and marks are counted, which is right for the vendor's own prompts.

    Raises:
        DsocrError: where the prompt is empty, or has not one placeholder.
    """
    pieces = split_at_images(prompt, 1)
    return 1 + sum(len(tokenizer.encode(piece) if tokenizer else WORD.findall(piece)) for piece in pieces)
