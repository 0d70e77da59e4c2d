"""Where the goldens of this installation are."""

from __future__ import annotations

from pathlib import Path


def golden_folder() -> Path:
    """Give the folder with ``vendor/`` and ``snapshots/``: the one in the wheel, or that of the checkout."""
    packaged = Path(__file__).with_name("golden")
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "golden"


def recordings_in(golden: Path) -> Path:
    """Give the recordings of a folder of goldens, or the shipped ones where it holds none."""
    own = golden / "vendor"
    return own if own.is_dir() else golden_folder() / "vendor"
