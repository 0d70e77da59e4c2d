"""What ``tests/vendor_live/record_inputs.py`` recorded of the vendor's ``infer``, and a tokenizer made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_dsocr.families import DEFAULT
from tests.recordings import recording_of

RECORDED = recording_of("inputs")


class RecordedTokenizer:
    """Encodes the texts that were recorded with the real vocabulary, and no others."""

    special = DEFAULT.special

    def __init__(self, encoded: Mapping[str, list[int]]) -> None:
        self._encoded = encoded

    def encode(self, text: str) -> list[int]:
        return list(self._encoded[text])

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError
