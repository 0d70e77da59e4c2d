"""Recordings that this project's tests compare with."""

from pathlib import Path
from typing import Any

from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.reference.goldens import facts_of, shipped_folder
from pytest_dsocr.reference.nearest import read_facts
from pytest_dsocr.reference.recording import Recording, find_recordings

FOLDER = shipped_folder() / "vendor"
FILES, CONTRACT = DEEPSEEK_OCR.vendor.files, DEEPSEEK_OCR.vendor.contract
SYMBOLS = tuple(symbol for symbols in CONTRACT.values() for symbol in symbols)


def find_recording(golden: Path, key: RecordingKey, resampling: str) -> Recording:
    """Return the one recording of ``key`` in ``golden``, or raise the error of :func:`find_recordings`."""
    [found] = find_recordings([golden], key, resampling)
    return found


def recording_of(kind: str, family: ModelSpec = DEEPSEEK_OCR) -> dict[str, Any]:
    """Return the facts ``kind-*.json`` of a family for the installed Pillow's resizing."""
    return read_facts(facts_of(FOLDER, family), kind)
