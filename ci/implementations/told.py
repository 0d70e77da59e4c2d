"""Commands that are shown before they are run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import in_shell

DSOCR = "import sys; from pytest_dsocr.cli.main import main; sys.exit(main())"


def told(command: Sequence[str | Path]) -> None:
    """Run a command, and say which; raise ``DsocrError`` where it fails."""
    words = [str(word) for word in command]
    sys.stdout.write(f"running     {in_shell(words)}\n")
    sys.stdout.flush()
    if status := subprocess.run(words).returncode:
        raise DsocrError(f"it ended with status {status}; see what it said above")


def downloaded(python: Path, folder: Path, what: Sequence[str], pattern: str) -> list[Path]:
    """Have ``python``'s pip fetch packages without what they need; give the files."""
    told([python, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *what])
    return [*folder.glob(pattern)]
