"""The journal of a run: a file that all its processes append to, which no report and no conftest can lose."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_dsocr.compare.verdict import Comparison
    from pytest_dsocr.report.payload import Entry


class Journal:
    """Entries of a run: of its process, its forks and its workers. The file is made with the first entry.

    Args:
        path: the file; a worker has its controller's.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = Path(path or Path(tempfile.gettempdir(), f"dsocr-{uuid.uuid4().hex}.jsonl"))
        self.is_closed = False
        """Whether the result is final: who compares after that ends the process with status 1."""

    def add(self, test: str, attempt: int, made: Iterable[Comparison] = (), *, expected: bool = False) -> None:
        """Append what a test compared, or that its failure is an expected one.

        Args:
            test: its node id.
            attempt: how often it was started so far; it may be run again.
            made: comparisons of it that do not pass, and those that its reports cannot carry any more.
            expected: whether it is marked to fail, and did.
        """
        if self.is_closed:
            sys.stderr.write(f"dsocr: {test} compared after the end of the run, whose result is written\n")
            sys.stderr.flush()
            os._exit(1)
        from pytest_dsocr.report.payload import of_comparison

        found = [of_comparison(one) for one in made]
        entry: Entry = {"test": test, "attempt": attempt, "comparisons": found, "expected": expected}
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")

    @property
    def entries(self) -> list[Entry]:
        """All so far."""
        return [*map(json.loads, self.path.read_bytes().splitlines())] if self.path.exists() else []
