"""The ids of the tokens that the vendor's code treats apart, and what it asks of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

IMAGE = "<image>"
BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids; the defaults are the vendor's, which its code hard-codes."""

    bos: int = 0
    eos: int = 1
    pad: int = 2
    image: int = 128815


class TextTokenizer(Protocol):
    """What the contract and the engine need of a tokenizer."""

    @property
    def special(self) -> SpecialTokens:
        """The ids of this vocabulary's special tokens."""

    def encode(self, text: str) -> list[int]:
        """Give the ids of ``text``, with no BOS and no EOS added; special tokens in it become their ids."""

    def decode(self, ids: Sequence[int]) -> str:
        """Give the text of ``ids``, special tokens kept, spaces as they are."""
