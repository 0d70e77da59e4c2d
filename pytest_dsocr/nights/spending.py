"""Where a night's time went, by job and by process, each of which has a GPU of its own; and how many pages an hour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pytest_dsocr.nights.state import Entry
from pytest_dsocr.report.times import OTHER, PARTS, by_part

HOUR_S = 3600
LOADING = ("loading the subject", "loading the reference")
ENDS, REST = "start and end", "the rest"
"""Before pytest was configured and after the process's last test; and what is pytest's and the tests' own."""
COLUMNS = (ENDS, *PARTS, REST)


class Row(NamedTuple):
    """One process of one job."""

    job: str
    process: str
    pages: int
    total_s: float
    seconds: Mapping[str, float]
    """By the names of :data:`COLUMNS`; their sum is ``total_s``."""


class Rate(NamedTuple):
    """A part as a whole."""

    part: str
    processes: int
    pages: int
    total_s: float
    loading: float
    """Share of the processes' time."""

    @property
    def an_hour(self) -> float:
        """Pages an hour, everything counted."""
        return HOUR_S * self.pages / self.total_s


def rows(entry: Entry, result: Mapping[str, Any]) -> Iterator[Row]:
    """Yield where the time of a job went, process by process."""
    for one in result.get("spent", ()):
        told = by_part([one])
        rest = told.pop(OTHER)
        seconds = {ENDS: max(0.0, entry.seconds - one["elapsed_s"]), **told, REST: rest}
        process = " ".join(filter(None, (one["worker"], one["device"])))
        yield Row(entry.name, process, one["cases"], entry.seconds, seconds)


def rates(found: Iterable[tuple[Entry, Iterable[Row]]]) -> Iterator[Rate]:
    """Yield what each part read in how much time; nothing of one that put no page to both sides."""
    by_name: dict[str, list[tuple[Entry, list[Row]]]] = {}
    for entry, of_entry in found:
        by_name.setdefault(entry.part, []).append((entry, [*of_entry]))
    for part, jobs in by_name.items():
        all_rows = [row for _, of_entry in jobs for row in of_entry]
        spent = sum(row.total_s for row in all_rows)
        if pages := sum(row.pages for row in all_rows):
            loading = sum(row.seconds[name] for row in all_rows for name in LOADING)
            total_s = sum(entry.seconds for entry, of_entry in jobs if of_entry)
            yield Rate(part, max(len(of_entry) for _, of_entry in jobs), pages, total_s, loading / spent)
