"""A checkpoint's tokenizer without transformers, and the synthetic vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins
from tokenizers import decoders, models, pre_tokenizers

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import Format
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.contract.prompt import BOS, EOS, IMAGE, PAD, SpecialTokens
from pytest_dsocr.models import MODELS


class _AddedToken(Struct):
    content: Annotated[str, Meta(min_length=1)]
    lstrip: bool | UnsetType = UNSET
    rstrip: bool | UnsetType = UNSET
    normalized: bool | UnsetType = UNSET
    single_word: bool | UnsetType = UNSET
    special: bool | UnsetType = UNSET


class _Config(Struct):
    added_tokens_decoder: dict[Annotated[str, Meta(pattern=r"\A[0-9]{1,9}\Z")], _AddedToken] = {}


FETCH = "fetch the checkpoint's tokenizer again"
TOKENIZERS, CONFIGS = Format(dict[str, Any], FETCH, MachineError), Format(_Config, FETCH, MachineError)


class Tokenizer:
    """Text to ids and back, without additions or clean-up; implements ``TextTokenizer``.

    The special ids are those of the vocabulary.
    """

    def __init__(self, encode: Callable[[str], list[int]], decode: Callable[[Sequence[int]], str]) -> None:
        self._encode, self._decode = encode, decode
        self.special = self._read_special()

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read ``folder/tokenizer.json``, and the added tokens that only ``tokenizer_config.json`` lists.

        Raises:
            DsocrError: if it is missing or broken, lacks a special token, or its ids and the list disagree.
        """
        path = folder / "tokenizer.json"
        try:
            backend = tokenizers.Tokenizer.from_buffer(TOKENIZERS.read_bytes(path))
        except DsocrError:
            raise
        except BaseException as error:  # the library raises nothing more specific, and panics
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise TOKENIZERS.fault(path, f"is not a tokenizer ({error})") from error
        _add_listed_tokens(backend, folder / "tokenizer_config.json")
        return cls.over(backend)

    @classmethod
    def wrap(cls, tokenizer: Any) -> Tokenizer:
        """Wrap a transformers tokenizer; raise ``DsocrError`` if it lacks a special token."""
        return cls(
            lambda text: tokenizer.encode(text, add_special_tokens=False),
            lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False),
        )

    @classmethod
    @cache
    def byte_level(cls, vocab_size: int) -> Tokenizer:
        """Return the synthetic tokenizer of :func:`byte_level_vocabulary`, made once in a process."""
        return cls.over(byte_level_vocabulary(vocab_size))

    @classmethod
    def over(cls, backend: tokenizers.Tokenizer) -> Tokenizer:
        """Wrap a tokenizer of the tokenizers package; raise ``DsocrError`` if it lacks a special token."""
        backend.no_truncation()
        backend.no_padding()
        return cls(
            lambda text: backend.encode(text, add_special_tokens=False).ids,
            lambda ids: backend.decode(list(ids), skip_special_tokens=False),
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, with no BOS and no EOS added; special tokens in it become their ids."""
        return self._encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens kept, spaces as they are."""
        return self._decode(ids)

    def _read_special(self) -> SpecialTokens:
        found = {text: self._id_of(text) for text in (BOS, EOS, PAD, IMAGE)}
        ids = [token_id for token_id in found.values() if token_id is not None]
        if len(ids) < len(found):
            absent = ", ".join(text for text, token_id in found.items() if token_id is None)
            raise DsocrError(f"the vocabulary lacks {absent}; give a DeepSeek-OCR checkpoint's tokenizer")
        return SpecialTokens(*ids)

    def _id_of(self, text: str) -> int | None:
        ids = self._encode(text)
        return ids[0] if len(ids) == 1 and self._decode(ids) == text else None


def _add_listed_tokens(backend: tokenizers.Tokenizer, path: Path) -> None:
    listed = CONFIGS.read(path).added_tokens_decoder if path.exists() else {}
    tokens = {int(token_id): tokenizers.AddedToken(**to_builtins(token)) for token_id, token in listed.items()}
    present = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for _, token in sorted(tokens.items()) if token.content not in present])
    for token_id, token in tokens.items():
        found = backend.token_to_id(token.content)
        if found != token_id:
            raise DsocrError(
                f"{path} puts {token.content} at {token_id} but tokenizer.json at {found}; "
                "fetch both files from the same checkpoint"
            )


FIRST_BYTE_ID = 3

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

    BOS 0, EOS 1, pad 2, byte b at ``3 + b``; the markup's tokens at a vendor's ids if the size is the vendor's,
    otherwise last. Every other id has its own text, so any output can be read. Every eighth is a span with boxes, so
    pages have boxes that follow from their tokens; the others are ``<id>``.

    Raises:
        DsocrError: if ``vocab_size`` is too small for them.
    """
    least = FIRST_BYTE_ID + 256 + len(MARKUP)
    if vocab_size < least:
        raise DsocrError(f"a synthetic vocabulary of {vocab_size} is too small; give at least {least}")
    of_vendors = (one.special.image for one in MODELS.values() if one.vocab_size == vocab_size)
    first = next(of_vendors, vocab_size - len(MARKUP))
    texts = [spell(_text_of(token_id)) for token_id in range(vocab_size)]
    texts[:FIRST_BYTE_ID] = [BOS, EOS, PAD]
    texts[FIRST_BYTE_ID : FIRST_BYTE_ID + 256] = BYTE_SYMBOLS
    texts[first : first + len(MARKUP)] = MARKUP
    vocabulary = {text: token_id for token_id, text in enumerate(texts)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    never_cut = {"special": True, "normalized": False}
    backend.add_special_tokens([tokenizers.AddedToken(text, **never_cut) for text in (BOS, EOS, PAD, *MARKUP)])
    return backend


def _text_of(token_id: int) -> str:
    if token_id % SPAN_EVERY:
        return f"<{token_id}>"
    n = token_id // SPAN_EVERY
    boxes = [_box(n), _box(n + 1)] if n % 5 == 0 else [_box(n)]
    return f"<|ref|>{LABELS[n % len(LABELS)]}<|/ref|><|det|>{boxes}<|/det|>\n"


def _box(n: int) -> list[int]:
    """Return the n-th of some thousands of boxes, in units of 1/999 of the page."""
    x, y = n * 389 % (UNITS // 2), n * 631 % (UNITS - 99)
    return [x, y, x + 50 + n * 53 % (UNITS // 2 - 50), y + 9 + n * 17 % 90]


def spell(text: str) -> str:
    """Write text as byte-level vocabularies spell it."""
    return text.encode().decode("latin-1").translate(SYMBOL_OF_BYTE)


def _byte_symbols() -> Iterable[str]:
    """Return the printable symbols of the 256 bytes, as byte-level vocabularies spell them."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


BYTE_SYMBOLS = tuple(_byte_symbols())
SYMBOL_OF_BYTE = dict(enumerate(BYTE_SYMBOLS))
