"""What ``suites/vendor_live/record_inputs.py`` recorded of the vendor's ``infer``, and a tokenizer made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.special import SpecialTokens
from suites.contract.digest import resampling

FOLDER = Path(__file__).parents[2] / "golden" / "vendor"


def recorded_inputs() -> dict[str, Any]:
    """The recording made with a Pillow that resizes like the installed one.

    The vendor's pixels are Pillow's, so that no recording can be compared with another Pillow's bit for bit.
    """
    recordings = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("inputs-*.json"))]
    by_resampling = {recording["provenance"]["resampling"]: recording for recording in recordings}
    known = {key: recording["provenance"]["versions"]["pillow"] for key, recording in by_resampling.items()}
    if resampling() not in by_resampling:
        raise LookupError(
            f"no recording was made with a Pillow that resizes like the installed one ({resampling()}), only "
            f"with {known}; record one with suites/vendor_live/record_inputs.py"
        )
    recording: dict[str, Any] = by_resampling[resampling()]
    return recording


RECORDED = recorded_inputs()


class RecordedTokenizer:
    """Encodes the texts that were recorded with the real vocabulary, and no others."""

    special = SpecialTokens()

    def __init__(self, encoded: Mapping[str, list[int]]) -> None:
        self._encoded = encoded

    def encode(self, text: str) -> list[int]:
        return list(self._encoded[text])

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError
