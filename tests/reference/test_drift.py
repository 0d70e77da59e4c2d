"""The vendor's files that the user named against ``golden/vendor/anchors.json``, and that against the recordings."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from pytest_dsocr.reference.anchors import SYMBOLS, read_anchors
from pytest_dsocr.reference.drift import drifts, read_json
from pytest_dsocr.reference.environment import FILES
from tests.checkout import CHECKOUT

RECORDINGS = CHECKOUT / "golden/vendor"
ANCHORS = RECORDINGS / "anchors.json"
FOLDER = os.environ.get("DSOCR_VENDOR", "")

needs_the_vendor = pytest.mark.skipif(not FOLDER, reason="set DSOCR_VENDOR to a folder with the vendor's Python files")


@needs_the_vendor
def test_the_folder_has_not_drifted() -> None:
    found = drifts(read_json(ANCHORS), read_anchors(Path(FOLDER)))
    assert not found, "\n".join(
        [
            f"{FOLDER} is not what the recordings were made with; see `dsocr vendor inspect {FOLDER}`",
            *(line for drift in found for line in drift.lines),
        ]
    )


@needs_the_vendor
@pytest.mark.parametrize("symbol", ["dynamic_preprocess", "DeepseekOCRForCausalLM.infer", "MoEGate"])
def test_one_changed_line_is_told_by_its_anchor_and_no_other(tmp_path: Path, symbol: str) -> None:
    for name in FILES:
        shutil.copy(Path(FOLDER) / name, tmp_path)
    expected = read_json(ANCHORS)
    path = tmp_path / expected.symbols[symbol].file
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(row for row in range(expected.symbols[symbol].line, len(lines)) if "return " in lines[row])
    lines[first] = lines[first].partition("return ")[0] + "return None"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert [drift.anchor for drift in drifts(expected, read_anchors(tmp_path))] == [symbol]


def test_the_anchors_hold_every_symbol_of_the_contract() -> None:
    assert tuple(read_json(ANCHORS).symbols) == SYMBOLS


def test_every_recording_was_made_with_the_files_of_the_anchors() -> None:
    files = {name: file.sha256 for name, file in read_json(ANCHORS).files.items()}
    made_with = {
        path.name: provenance["vendor_sha256"]
        for path in RECORDINGS.rglob("*.json")
        if "vendor_sha256" in (provenance := json.loads(path.read_text(encoding="utf-8")).get("provenance", {}))
    }
    assert made_with
    assert [name for name, sha256 in made_with.items() if sha256 != files] == []
