"""Journal of a run: a file to which all its processes append. No report and no conftest can lose its entries."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_dsocr.compare.verdict import Comparison
    from pytest_dsocr.report.worker_report import JournalEntry


class Journal:
    """Entries of a run, from its process, its forks and its workers, which have the controller's ``path``.

    The first entry makes the file.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = Path(path or Path(tempfile.gettempdir(), f"dsocr-{uuid.uuid4().hex}.jsonl"))
        self.is_closed = False
        """Whether the result is final. A later comparison ends the process with status 1."""

    def add(self, test: str, attempt: int, made: Iterable[Comparison] = (), *, expected: bool = False) -> None:
        """Append comparisons of a test, or the fact that it failed as expected.

        Args:
            attempt: number of its starts so far; it may be run again.
            made: comparisons that do not pass, and those that come too late for its reports.
            expected: whether it is marked to fail, and failed.
        """
        if self.is_closed:
            sys.stderr.write(f"dsocr: {test} compared after the end of the run, whose result is written\n")
            sys.stderr.flush()
            os._exit(1)
        import msgspec

        from pytest_dsocr.report.comparison_result import ComparisonResult
        from pytest_dsocr.report.worker_report import JournalEntry

        entry = JournalEntry(test, attempt, [ComparisonResult.of(one) for one in made], expected)
        with self.path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(entry) + b"\n")

    @property
    def entries(self) -> list[JournalEntry]:
        """All entries so far."""
        if not self.path.exists():
            return []
        import msgspec

        from pytest_dsocr.report.worker_report import JournalEntry

        return [msgspec.json.decode(line, type=JournalEntry) for line in self.path.read_bytes().splitlines()]
