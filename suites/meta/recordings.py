"""Where the recordings are that the tests of this project are held against."""

from __future__ import annotations

from typing import Any

from pytest_dsocr.reference.goldens import shipped_folder
from pytest_dsocr.reference.recorded.facts import read_facts

FOLDER = shipped_folder() / "vendor"


def recording_of(kind: str) -> dict[str, Any]:
    """The facts ``kind-*.json`` made with a Pillow that resizes like the installed one."""
    return read_facts(FOLDER, kind)
