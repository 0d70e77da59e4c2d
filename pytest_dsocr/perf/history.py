"""What was measured run by run: a file with a line of JSON for each side of each run, which only grows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.reading import Format, Identity, Time
from pytest_dsocr.foundation.words import HASH_CHARACTERS
from pytest_dsocr.perf.baseline import machine_name, part_of
from pytest_dsocr.perf.judgement import Judgement
from pytest_dsocr.perf.rounds import Measured

FILE_NAME = "history.jsonl"
OF_SERIES = ("machine", "subject", "setup", "page")
"""Parts of an identity that have to be equal for two lines to be in one chart."""
SHOWN = ("checkpoint", "dtype", "attention", "name", "preset", "max_new_tokens")
"""Of a setup and a page, what a chart's title names."""


@dataclass(frozen=True)
class Spread:
    """A quantity's rounds in one run, in milliseconds: the median, and the quartiles around it."""

    median_ms: Time
    low_ms: Time
    high_ms: Time

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Spread:
        """Give that of some rounds."""
        if len(times_ms) == 1:
            return cls(times_ms[0], times_ms[0], times_ms[0])
        low, middle, high = statistics.quantiles(times_ms, n=4, method="inclusive")
        return cls(middle, low, high)


@dataclass(frozen=True)
class Line:
    """One side of one run."""

    date: str
    name: str
    """As the user named the side, such as ``HEAD~3``."""
    commit: str
    series: Identity
    """The machine, the subject, how it was set up, and the page: lines of other series are not comparable."""
    quantities: Mapping[str, Spread]
    exact: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """By quantity, where this side was judged against another."""
    format: Literal[1] = 1

    @classmethod
    def of(cls, side: Measured, judgements: Iterable[Judgement] = (), date: str = "") -> Line:
        """Give the line of what was measured of one side."""
        identity = side.identity
        return cls(
            date or datetime.now(UTC).isoformat(timespec="seconds"),
            str(identity.get("name", "")),
            str(identity.get("commit", "")),
            {name: identity.get(name) for name in OF_SERIES},
            {quantity: Spread.of(side.wall_ms(quantity)) for quantity in side.quantities},
            side.exact,
            {one.quantity: str(one.pace) for one in judgements},
        )

    @classmethod
    def of_run(cls, perf: Mapping[str, Any], date: str) -> Line:
        """Give the line of a run of the suite ``perf``, from what ``PerfRun.to_json`` gave."""
        identity, quartiles = perf["identity"], perf["quartiles_ms"]
        return cls(
            date,
            str(identity.get("name", "")),
            str(identity.get("commit", "")),
            {name: identity.get(name) for name in OF_SERIES},
            {name: Spread(median_ms, *quartiles[name]) for name, median_ms in perf["median_ms"].items()},
            perf["exact"],
            {one["quantity"]: one["pace"] for one in perf["judgements"]},
        )

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values, as :data:`LINES` reads them."""
        return asdict(self)

    @property
    def short(self) -> str:
        """Give the commit in a few digits, or the side's name where there is none."""
        commit, _, changed = self.commit.partition("-")
        return (commit[:HASH_CHARACTERS] + (f"-{changed}" if changed else "")) or self.name


LINES = Format(Line, "it is left out; the others count")


@dataclass(frozen=True)
class Series:
    """Lines of one machine, subject, setting and page, in the order of their dates."""

    what: Mapping[str, Any]
    lines: tuple[Line, ...]

    @property
    def quantities(self) -> list[str]:
        """What any of the lines has."""
        return list(dict.fromkeys(name for line in self.lines for name in line.quantities))

    def of(self, quantity: str) -> list[tuple[Line, Spread]]:
        """Give a quantity over the runs that have it."""
        return [(line, line.quantities[quantity]) for line in self.lines if quantity in line.quantities]

    @property
    def title(self) -> str:
        """Give in words what is equal in all lines."""
        return title_of(self.what)


def title_of(identity: Mapping[str, Any]) -> str:
    """Give the parts of an identity that decide which times compare, in words."""
    machine, setup, page = (part_of(identity, name) for name in ("machine", "setup", "page"))
    how = {**setup, **page}
    name = machine_name(machine) if machine else "unknown machine"
    return ", ".join((name, str(identity.get("subject")), *(str(how[part]) for part in SHOWN if part in how)))


def append(path: Path, lines: Iterable[Line]) -> None:
    """Add lines to a file, each by one write; what was there is left as it is.

    Raises:
        DsocrError: where the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        with path.open("ab", buffering=0) as file:
            for line in lines:
                file.write(b"\n" * torn + json.dumps(line.to_json()).encode() + b"\n")
                torn = False
    except OSError as error:
        raise DsocrError(f"{path} cannot be written ({error.strerror}); name another file with --history") from error


def read(place: Path) -> tuple[list[Series], list[str]]:
    """Read a file, or all of that name in a folder; give the series, and what is wrong with which lines.

    Raises:
        DsocrError: where there is no such file.
    """
    files = sorted(place.rglob(FILE_NAME)) if place.is_dir() else [place]
    if not files:
        raise DsocrError(f"{place} holds no history; name a {FILE_NAME} that dsocr bench has written, or its folder")
    good: list[Line] = []
    damaged: list[str] = []
    for file in files:
        for line in _read_file(file):
            (good if isinstance(line, Line) else damaged).append(line)  # type: ignore[arg-type]
    return in_series(good), damaged


def _read_file(file: Path) -> Iterator[Line | str]:
    for number, text in enumerate(LINES.read_bytes(file).split(b"\n"), 1):
        if text.strip():
            try:
                yield LINES.decode(text, f"{file}:{number}")
            except DsocrError as error:
                yield str(error)


def in_series(lines: Iterable[Line]) -> list[Series]:
    """Give the lines apart that do not compare, each group in the order of its dates."""
    found: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.date):
        found.setdefault(json.dumps(line.series, sort_keys=True), []).append(line)
    return [Series(group[0].series, tuple(group)) for group in found.values()]
