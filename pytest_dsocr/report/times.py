"""The times of a run as rows: for the terminal, and for the page with a bar for each quantity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_dsocr.foundation.words import aligned
from pytest_dsocr.perf.summary import ms

UNKNOWN = ""
LEFT = ("stage", "")
"""The headings of names and of verdicts, which need none."""


class Row(NamedTuple):
    """A line of the table, and its verdict."""

    text: str
    pace: str = UNKNOWN


@dataclass(frozen=True)
class Times:
    """One quantity, as the page shows it."""

    quantity: str
    median: str
    baseline: str
    ratio: str
    interval: str
    pace: str
    share: float
    """Of the whole page, in per cent; a bar's length."""
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
        one = judged.get(quantity)
        compared = one is not None and one["pace"] != "NOT-COMPARED"
        yield Times(
            quantity,
            ms(median_ms),
            ms(one["before_ms"]) if one and compared else UNKNOWN,
            f"{one['ratio']:.3f}" if one and compared else UNKNOWN,
            f"{one['low']:.3f} to {one['high']:.3f}" if one and compared else UNKNOWN,
            one["pace"] if one else UNKNOWN,
            min(100.0, 100 * median_ms / page_ms) if page_ms else 0.0,
            *_under_roof(perf, quantity),
        )


def _under_roof(perf: Mapping[str, Any], quantity: str) -> tuple[str, ...]:
    found = (perf.get("roof") or {"times": {}})["times"].get(quantity)
    return (ms(found["least_ms"]), f"{found['share']['roof']:.1%}", found["limit"]) if found else ()


def table(perf: Mapping[str, Any]) -> Iterator[Row]:
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
    yield from map(Row, aligned([heading, *cells], LEFT), paces)
