"""What does not pass, on a way of its own from the comparison to the verdict.

A conftest may swallow a test's failure or rewrite its report, and a thread or a fork that compares has no report. So
each process keeps a file that ``dsocr_check`` appends to, and a worker of pytest-xdist sends its lines when it ends.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.report.payload import Entry, of_comparison


class Journal:
    """Entries of this process and of what it forked; the file is made with the first, and opened for each."""

    def __init__(self) -> None:
        self._path = Path(tempfile.gettempdir(), f"dsocr-{uuid.uuid4().hex}.jsonl")

    def add(self, test: str, attempt: int, failing: Iterable[Comparison] = (), *, expected: bool = False) -> None:
        """Append what a test compared, or that its failure is an expected one.

        Args:
            test: its node id.
            attempt: how often it was begun so far; it may be run again.
            failing: comparisons of it that do not pass.
            expected: whether it is marked to fail, and did.
        """
        found = [of_comparison(one) for one in failing]
        entry: Entry = {"test": test, "attempt": attempt, "comparisons": found, "expected": expected}
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")

    @property
    def entries(self) -> list[Entry]:
        """All so far."""
        return [*map(json.loads, self._path.read_bytes().splitlines())] if self._path.exists() else []

    def close(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)
