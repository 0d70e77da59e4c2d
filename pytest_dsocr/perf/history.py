"""What was measured run by run, in series of runs that compare with one another."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_dsocr.foundation.reading import Identity, Time
from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, fit
from pytest_dsocr.perf.identity import title_of
from pytest_dsocr.perf.summary import ms

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
    """The times of one run."""

    date: str
    name: str
    """As the user named what ran."""
    commit: str
    series: Identity
    """The machine, the subject, how it was set up, and the page: lines of other series are not comparable."""
    quantities: Mapping[str, Spread]
    exact: Mapping[str, int] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """By quantity, where the run was judged against a baseline."""
    format: Literal[1] = 1

    @classmethod
    def of_run(cls, perf: Mapping[str, Any], date: str) -> Line:
        """Return the line of a run of the suite ``perf``, from its result (``PerfRun.to_json``)."""
        quartiles = perf["quartiles_ms"]
        quantities = {name: Spread(median_ms, *quartiles[name]) for name, median_ms in perf["median_ms"].items()}
        verdicts = {one["quantity"]: one["pace"] for one in perf["judgements"]}
        identity = perf["identity"]
        series = {name: identity.get(name) for name in OF_SERIES}
        named = (str(identity.get(name, "")) for name in ("name", "commit"))
        return cls(date, *named, series, quantities, perf["exact"], verdicts)

    @property
    def short(self) -> str:
        """The commit in a few digits, or the side's name where there is none."""
        commit, _, changed = self.commit.partition("-")
        return (commit[:HASH_CHARACTERS] + (f"-{changed}" if changed else "")) or self.name

    def summary(self, quantity: str) -> str:
        """Return a quantity's times, the commit and the verdict."""
        verdict = self.verdicts.get(quantity, "")
        return f"{self.quantities[quantity]} at {self.short}" + (f" ({verdict})" if verdict else "")


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


def in_series(lines: Iterable[Line]) -> list[Series]:
    """Group lines that compare with one another, each group in the order of its dates."""
    found: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.date):
        found.setdefault(json.dumps(line.series, sort_keys=True), []).append(line)
    return [Series(group[0].series, tuple(group)) for group in found.values()]


def lines_of(series: Sequence[Series]) -> Iterator[str]:
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
