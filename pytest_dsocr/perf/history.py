"""What was measured run by run: a file with a line of JSON for each side of each run."""

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
from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, fit
from pytest_dsocr.perf.identity import title_of
from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.perf.statistics import Judgement
from pytest_dsocr.perf.summary import ms

FILE_NAME = "history.jsonl"
OF_SERIES = ("machine", "subject", "setup", "page")
"""Parts of an identity that have to be equal for two lines to be in one series."""


@dataclass(frozen=True)
class Spread:
    """A quantity's rounds in one run, in milliseconds: the median, and the quartiles around it."""

    median_ms: Time
    low_ms: Time
    high_ms: Time

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Spread:
        """Return that of some rounds."""
        if len(times_ms) == 1:
            return cls(times_ms[0], times_ms[0], times_ms[0])
        low, middle, high = statistics.quantiles(times_ms, n=4, method="inclusive")
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{ms(self.median_ms)} ({ms(self.low_ms)} to {ms(self.high_ms)})"


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
        """Return the line of what was measured of one side."""
        quantities = {quantity: Spread.of(side.wall_ms(quantity)) for quantity in side.quantities}
        verdicts = {one.quantity: str(one.pace) for one in judgements}
        date = date or datetime.now(UTC).isoformat(timespec="seconds")
        return cls(date, *_named(side.identity), quantities, side.exact, verdicts)

    @classmethod
    def of_run(cls, perf: Mapping[str, Any], date: str) -> Line:
        """Return the line of a run of the suite ``perf``, from its result (``PerfRun.to_json``)."""
        quartiles = perf["quartiles_ms"]
        quantities = {name: Spread(median_ms, *quartiles[name]) for name, median_ms in perf["median_ms"].items()}
        verdicts = {one["quantity"]: one["pace"] for one in perf["judgements"]}
        return cls(date, *_named(perf["identity"]), quantities, perf["exact"], verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, as :data:`LINES` reads them."""
        return asdict(self)

    @property
    def short(self) -> str:
        """The commit in a few digits, or the side's name where there is none."""
        commit, _, changed = self.commit.partition("-")
        return (commit[:HASH_CHARACTERS] + (f"-{changed}" if changed else "")) or self.name

    def summary(self, quantity: str) -> str:
        """Return a quantity's times, the commit and the verdict."""
        verdict = self.verdicts.get(quantity, "")
        return f"{self.quantities[quantity]} at {self.short}" + (f" ({verdict})" if verdict else "")


def _named(identity: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the commit and the series of what was measured."""
    series = {name: identity.get(name) for name in OF_SERIES}
    return str(identity.get("name", "")), str(identity.get("commit", "")), series


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

    def having(self, quantity: str) -> list[Line]:
        """Return the runs that have a quantity."""
        return [line for line in self.lines if quantity in line.quantities]

    def most_ms(self, quantity: str) -> float:
        """Return the greatest of a quantity's medians, in milliseconds; 1 where all are 0."""
        return max(line.quantities[quantity].median_ms for line in self.having(quantity)) or 1.0

    @property
    def title(self) -> str:
        """What is equal in all lines."""
        return title_of(self.what)


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
    """Read a file, or all of that name in a folder; return the series, and what is wrong with which lines.

    Raises:
        DsocrError: where there is no such file.
    """
    files = sorted(place.rglob(FILE_NAME)) if place.is_dir() else [place]
    if not files:
        raise DsocrError(f"{place} holds no history; name a {FILE_NAME} that dsocr bench has written, or its folder")
    good: list[Line] = []
    damaged: list[str] = []
    for file in files:
        for number, text in enumerate(LINES.read_bytes(file).split(b"\n"), 1):
            try:
                good += [LINES.decode(text, f"{file}:{number}")] if text.strip() else []
            except DsocrError as error:
                damaged.append(str(error))
    return in_series(good), damaged


def in_series(lines: Iterable[Line]) -> list[Series]:
    """Group lines that compare with one another, each group in the order of its dates."""
    found: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.date):
        found.setdefault(json.dumps(line.series, sort_keys=True), []).append(line)
    return [Series(group[0].series, tuple(group)) for group in found.values()]


def lines_of(series: Sequence[Series], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the history for a terminal: each quantity's last median with its quartiles, and the first."""
    for one in series:
        yield fit(one.title)
        yield f"  {count(len(one.lines), 'run')}, from {one.lines[0].date[:10]} to {one.lines[-1].date[:10]}"
        for quantity in one.quantities:
            lines = one.having(quantity)
            first = lines[0]
            since = f", {first.quantities[quantity]} at {first.short} first" if len(lines) > 1 else ""
            yield f"  {quantity:<16}{lines[-1].summary(quantity)}{since}"
        yield ""
    if len(series) > 1:
        yield f"{len(series)} series, for runs of another machine, subject, setting or page do not compare"
    yield from (f"problem     {why}" for why in damaged)
