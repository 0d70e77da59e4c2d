"""Recordings of the vendor's real code, found by what their bits depend on."""

from __future__ import annotations

import json
from typing import Any

from pytest_dsocr.contract.resampling import resampling
from pytest_dsocr.goldens import golden_folder

FOLDER = golden_folder() / "vendor"


def recording_of(kind: str) -> dict[str, Any]:
    """The recording ``kind-*.json`` made with a Pillow that resizes like the installed one.

    The vendor's pixels are Pillow's, so that no recording can be compared with another Pillow's bit for bit.
    """
    recordings = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob(f"{kind}-*.json"))]
    by_resampling = {recording["provenance"]["resampling"]: recording for recording in recordings}
    if resampling() not in by_resampling:
        known = {key: recording["provenance"]["versions"]["pillow"] for key, recording in by_resampling.items()}
        raise LookupError(
            f"no {kind} recording was made with a Pillow that resizes like the installed one ({resampling()}), only "
            f"with {known}; record one with suites/meta/vendor_live/record_{kind}.py"
        )
    recording: dict[str, Any] = by_resampling[resampling()]
    return recording
