"""The vocabulary of models with synthetic weights."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.contract.special import BOS, EOS, IMAGE, PAD
from pytest_dsocr.foundation.errors import DsocrError

FIRST_BYTE_ID = 3
VENDOR_VOCAB_SIZE = 129280
VENDOR_FIRST_MARKUP_ID = 128815
MARKUP = (
    IMAGE,
    "<|ref|>",
    "<|/ref|>",
    "<|det|>",
    "<|/det|>",
    "<|grounding|>",
    "<td>",
    "</td>",
    "<tr>",
    "</tr>",
    "<|User|>",
    "<|Assistant|>",
)
"""The special tokens of pages, in the order of their ids."""

SPAN_EVERY = 8
LABELS = ("title", "sub_title", "text", "image", "image_caption", "table", "equation")


def byte_level_vocabulary(vocab_size: int) -> tokenizers.Tokenizer:
    """Make a vocabulary that encodes any text byte by byte, for models with synthetic weights.

    BOS 0, EOS 1, pad 2, byte b at ``3 + b``; the markup's tokens at the vendor's ids if the size is the vendor's,
    else last. Every other id is text of its own, so that whatever a model says can be read: every eighth a labelled
    span with boxes, so that its pages have boxes, and they follow from its tokens; the others ``<id>``.

    Raises:
        DsocrError: where ``vocab_size`` is too small to hold them.
    """
    least = FIRST_BYTE_ID + 256 + len(MARKUP)
    if vocab_size < least:
        raise DsocrError(f"a synthetic vocabulary of {vocab_size} is too small; give at least {least}")
    first = VENDOR_FIRST_MARKUP_ID if vocab_size == VENDOR_VOCAB_SIZE else vocab_size - len(MARKUP)
    texts = [spell(_text_of(token_id)) for token_id in range(vocab_size)]
    texts[:FIRST_BYTE_ID] = [BOS, EOS, PAD]
    texts[FIRST_BYTE_ID : FIRST_BYTE_ID + 256] = BYTE_SYMBOLS
    texts[first : first + len(MARKUP)] = MARKUP
    vocabulary = {text: token_id for token_id, text in enumerate(texts)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([special_token(text) for text in (BOS, EOS, PAD, *MARKUP)])
    return backend


def _text_of(token_id: int) -> str:
    if token_id % SPAN_EVERY:
        return f"<{token_id}>"
    n = token_id // SPAN_EVERY
    boxes = [_box(n), _box(n + 1)] if n % 5 == 0 else [_box(n)]
    return f"<|ref|>{LABELS[n % len(LABELS)]}<|/ref|><|det|>{boxes}<|/det|>\n"


def _box(n: int) -> list[int]:
    """Give the n-th of some thousands of boxes, in units of 1/999 of the page."""
    x, y = n * 389 % (UNITS // 2), n * 631 % (UNITS - 99)
    return [x, y, x + 50 + n * 53 % (UNITS // 2 - 50), y + 9 + n * 17 % 90]


def spell(text: str) -> str:
    """Write text as byte-level vocabularies spell it."""
    return "".join(BYTE_SYMBOLS[byte] for byte in text.encode())


def _byte_symbols() -> Iterable[str]:
    """Give the printable stand-ins of the 256 bytes, as byte-level vocabularies spell them."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def special_token(text: str) -> tokenizers.AddedToken:
    """Mark ``text`` as a token that is never cut."""
    return tokenizers.AddedToken(text, special=True, normalized=False)


BYTE_SYMBOLS = tuple(_byte_symbols())
