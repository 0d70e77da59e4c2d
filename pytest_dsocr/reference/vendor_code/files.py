"""The vendor's Python files, by name; light, for whatever needs no torch."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.foundation.errors import MachineError

FILES = (
    "modeling_deepseekocr.py",
    "modeling_deepseekv2.py",
    "deepencoder.py",
    "conversation.py",
    "configuration_deepseek_v2.py",
)


def check_vendor_folder(folder: Path) -> None:
    """Raise ``DsocrError`` unless the folder holds all of the vendor's files."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise MachineError(f"{folder} lacks {', '.join(missing)}; give a folder with the vendor's Python files")
