"""What the vendor's ``infer`` made of many outputs, as ``tests.vendor_live.record_postprocess`` recorded it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.recordings import FOLDER

RECORD: dict[str, Any] = json.loads((FOLDER / "postprocess.json").read_text(encoding="utf-8"))
PAGE_SIZE: tuple[int, int] = (RECORD["page_size"][0], RECORD["page_size"][1])


@dataclass(frozen=True)
class Recorded:
    """One output: what the vendor read in it, drew (outlines, in pixels) and wrote; its error if it raised."""

    text: str
    error: str | None
    spans: list[list[str]]
    outlines: list[list[int]]
    mmd: str
    figures: dict[str, list[int]]
    files: list[str]


CASES: dict[str, Recorded] = {name: Recorded(**case) for name, case in RECORD["cases"].items()}
each_recorded_output = pytest.mark.parametrize("recorded", CASES.values(), ids=CASES.keys())
