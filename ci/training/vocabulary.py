"""The tokenizer of the embedded checkpoint: bytes, and whole words and numbers where there is a token for them.

There are no merges. The pattern cuts a text into words, numbers of up to three digits and signs; what is in the
vocabulary is one token, anything else is spelt in bytes, so that every text comes back. A comma takes the space behind
it, as between coordinates; so a word in lower case is spelt there.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from ci.training.lexicon import FIRST_WORDS, LABELS, WORDS
from ci.training.lexicon import MARKUP as PAGE_MARKUP
from pytest_dsocr.contract.prompt import BOS, EOS, PAD, PROMPTS
from pytest_dsocr.engine.tokenizer import BYTE_SYMBOLS, MARKUP, special_token, spell

NUMBERS = range(1000)
"""Each is one token, and so is each coordinate of a box."""
PUNCTUATION = ("00", "[[", "]]", "], [", ", ", "\n", "\n\n")
PIECES = "|".join(
    (
        r"\d{1,3}",
        r" ?[\p{L}_]+",
        r"</?[a-z]+>",
        r"\\\[ | \\\]",
        r"#+ |- |\n+",
        r"\[\[|\]\]|\], \[|, ",
        r" ?[^\s\p{L}\d]",
        r"\s",
    )
)


def mini_vocabulary() -> tokenizers.Tokenizer:
    """Make the tokenizer: BOS 0, EOS 1, pad 2, byte b at ``3 + b``, what is whole, and the markup's tokens last."""
    whole = (*map(str, NUMBERS[10:]), *PUNCTUATION, *PAGE_MARKUP, *_words())
    texts = [BOS, EOS, PAD, *BYTE_SYMBOLS, *dict.fromkeys(map(spell, whole)), *MARKUP]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={text: n for n, text in enumerate(texts)}, merges=[], ignore_merges=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([special_token(text) for text in (BOS, EOS, PAD, *MARKUP)])
    return backend


def number_ids(backend: tokenizers.Tokenizer) -> list[int]:
    """Give the tokens of 0 to 999, in order."""
    vocabulary = backend.get_vocab()
    return [vocabulary[str(n)] for n in NUMBERS]


def _words() -> Iterator[str]:
    """Give every form in which a word of the lexicon or of a prompt is one token."""
    yield from LABELS
    for word in (*WORDS, *FIRST_WORDS):
        yield from (word.capitalize(), f" {word.capitalize()}", f" {word}")
    for prompt in PROMPTS.values():
        pieces = pre_tokenizers.Split(Regex(PIECES), behavior="isolated").pre_tokenize_str(prompt)
        yield from (piece for piece, _ in pieces if len(piece) > 1 and piece.strip("_ ").isalpha())
    yield from (f" {sign}" for sign in f"=+-({ascii_lowercase}")
