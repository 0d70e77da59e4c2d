"""Times of a run: rows of the subject's times, and the elapsed time of the run by activity."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_dsocr.base.words import aligned, count
from pytest_dsocr.report.parts import COLLECTING, COMPARING, STARTING, TESTS, WAITING
from pytest_dsocr.report.worker_report import ProcessTimes
from pytest_dsocr.timing.summary import ms

PARTS: Mapping[str, str] = {
    STARTING: "reading options, loading plugins, importing the subject's module",
    COLLECTING: "finding and importing tests",
    "loading the subject": "opening it, with its imports",
    "loading the reference": "waiting for it after that",
    "subject": "its results, teacher-forced and decoded freely",
    "reference": "waiting for its results",
    COMPARING: "comparing both sides",
    "explaining": "computing broken stages again with each known mistake",
    "drawing": "drawing pages with the boxes of both sides",
    WAITING: "between tests: pytest, and waiting for other workers",
}
"""Activities of a run and their meaning; each suite of tests is another activity."""
OF_TESTS = "the tests' own calls, and pytest around them"
OTHER = "other"
OF_OTHER = "not measured"
LEAST_S = 0.05
"""Least time of an activity in the line."""


def by_part(processes: Sequence[ProcessTimes]) -> dict[str, float]:
    """Return the seconds of each activity over all processes, and the rest of their time as ``other``."""
    tests = sorted({name for one in processes for name in one.seconds if name.startswith(TESTS)})
    parts = {name: sum(one.seconds.get(name, 0.0) for one in processes) for name in (*PARTS, *tests)}
    had_s = sum(one.elapsed_s for one in processes)
    return {**parts, OTHER: max(0.0, had_s - sum(parts.values()))}


def in_line(processes: Sequence[ProcessTimes]) -> str:
    """Return the elapsed time in one line, without negligible activities."""
    parts = [f"{name} {seconds:.1f}" for name, seconds in by_part(processes).items() if seconds >= LEAST_S]
    longest_s = max(one.elapsed_s for one in processes)
    return f"{longest_s:.1f} s on {count(len(processes), 'worker')}: {', '.join(parts) or 'nothing of note'}"


def in_table(processes: Sequence[ProcessTimes]) -> Iterator[str]:
    """Yield a line for each activity: seconds, share and meaning."""
    found = by_part(processes)
    all_s = sum(found.values()) or 1.0
    for name, seconds in found.items():
        meaning = PARTS.get(name, OF_OTHER if name == OTHER else OF_TESTS)
        yield f"{name:<22}{seconds:>9.1f} s{seconds / all_s:>6.0%}  {meaning}"


UNKNOWN = ""
LEFT = ("stage", "")
"""Headings of columns that are aligned left."""


class TimesRow(NamedTuple):
    """A line of the table, and its verdict."""

    text: str
    pace: str = UNKNOWN


@dataclass(frozen=True)
class Times:
    """Texts of one quantity in a table."""

    quantity: str
    median: str
    baseline: str
    ratio: str
    interval: str
    pace: str
    share: float
    """Share of the whole page in per cent, the length of its bar."""
    roof: str = UNKNOWN
    """The least time that the device allows."""
    near: str = UNKNOWN
    """The roof's share of the time."""
    limit: str = UNKNOWN


def rows(perf: Mapping[str, Any]) -> Iterator[Times]:
    """Yield each quantity that was timed, in the order of the stages."""
    judged = {one["quantity"]: one for one in perf["judgements"]}
    page_ms = perf["median_ms"].get("page", 0.0)
    for quantity, median_ms in perf["median_ms"].items():
        one, roof = judged.get(quantity), (perf["roof"] or {"times": {}})["times"].get(quantity)
        compared = one is not None and None not in (one[name] for name in ("before_ms", "ratio", "low", "high"))
        yield Times(
            quantity,
            ms(median_ms),
            ms(one["before_ms"]) if one and compared else UNKNOWN,
            f"{one['ratio']:.3f}" if one and compared else UNKNOWN,
            f"{one['low']:.3f} to {one['high']:.3f}" if one and compared else UNKNOWN,
            one["pace"] if one else UNKNOWN,
            min(100.0, 100 * median_ms / page_ms) if page_ms else 0.0,
            *((ms(roof["least_ms"]), f"{roof['share']['roof']:.1%}", roof["limit"]) if roof else ()),
        )


def table(perf: Mapping[str, Any]) -> Iterator[TimesRow]:
    """Yield a heading and the rows, aligned."""
    found = list(rows(perf))
    if not found:
        return
    against, under_roof = any(one.baseline for one in found), any(one.roof for one in found)
    heading = (
        *("stage", "this run"),
        *(("roof", "of it", "limit") if under_roof else ()),
        *(("baseline", "ratio", "interval", "") if against else ()),
    )
    cells = [
        (
            *(one.quantity, one.median),
            *((one.roof, one.near, one.limit) if under_roof else ()),
            *((one.baseline, one.ratio, one.interval, one.pace) if against else ()),
        )
        for one in found
    ]
    paces = (UNKNOWN, *(one.pace for one in found))
    yield from map(TimesRow, aligned([heading, *cells], LEFT), paces)
