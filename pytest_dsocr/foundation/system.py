"""The operating systems that this runs on."""

from __future__ import annotations

import sys

from pytest_dsocr.foundation.errors import DsocrError


def check_system() -> None:
    """Raise ``DsocrError`` on Windows: time limits, isolation and recordings use signals and groups of processes."""
    system = sys.platform
    if system == "win32":
        raise DsocrError("pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL")
