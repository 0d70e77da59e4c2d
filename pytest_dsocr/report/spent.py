"""Where a run's time went, by part: what its processes spent on each, of the time that they had together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_dsocr.foundation.words import count
from pytest_dsocr.report.payload import SpentPayload

STARTING, COLLECTING, COMPARING, WAITING, TESTS = "starting", "collecting", "comparing", "waiting", "tests"
PARTS: Mapping[str, str] = {
    STARTING: "options, plugins, and the subject's module imported",
    COLLECTING: "tests found and imported",
    "loading the subject": "opened, with its imports",
    "loading the reference": "waited for beyond that",
    "subject": "its answers, along the reference's tokens and freely",
    "reference": "its answers waited for; a live one works on the next page beside the subject",
    COMPARING: "answers compared",
    "explaining": "stages that broke computed again under known mistakes",
    "drawing": "pages drawn with the boxes of both sides",
    WAITING: "between tests: pytest, and work that another worker had",
}
"""What is measured, and what it is; beside it there are tests, by suite."""
OF_TESTS = "what they ask by themselves, and pytest around them"
OTHER = "other"
OF_OTHER = "not measured"
LEAST_S = 0.05
"""Below which a part is left out of the line."""


def by_part(processes: Sequence[SpentPayload]) -> dict[str, float]:
    """Give the seconds of each part, of all processes together, and ``other`` for what is left of their time."""
    tests = sorted({name for one in processes for name in one["seconds"] if name.startswith(TESTS)})
    parts = {name: sum(one["seconds"].get(name, 0.0) for one in processes) for name in (*PARTS, *tests)}
    had_s = sum(one["elapsed_s"] for one in processes)
    return {**parts, OTHER: max(0.0, had_s - sum(parts.values()))}


def in_line(processes: Sequence[SpentPayload]) -> str:
    """Say it in a line, without what took next to nothing."""
    parts = [f"{name} {seconds:.1f}" for name, seconds in by_part(processes).items() if seconds >= LEAST_S]
    longest_s = max(one["elapsed_s"] for one in processes)
    return f"{longest_s:.1f} s on {count(len(processes), 'worker')}: {', '.join(parts) or 'nothing of note'}"


def in_table(processes: Sequence[SpentPayload]) -> Iterator[str]:
    """Yield a line for each part: seconds, the share of all, and what it is."""
    found = by_part(processes)
    all_s = sum(found.values()) or 1.0
    for name, seconds in found.items():
        meaning = PARTS.get(name, OF_OTHER if name == OTHER else OF_TESTS)
        yield f"{name:<22}{seconds:>9.1f} s{seconds / all_s:>6.0%}  {meaning}"
