"""Where a run's time went, by part: what its workers spent on each, of the time that they had together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_dsocr.foundation.words import count

PARTS: Mapping[str, str] = {
    "loading": "both sides opened",
    "reference": "the reference's answers",
    "subject": "the subject's answers, along the reference's tokens and freely",
    "comparing": "answers compared",
    "drawing": "pages drawn with the boxes of both sides",
}
"""What is measured, and what it is."""
LEAST_S = 0.05
OTHER = "starting, importing, collecting, tests that ask by themselves, waiting for the last worker"


@dataclass(frozen=True)
class Spent:
    """Seconds of a run.

    Args:
        parts: by names of :data:`PARTS`, of all workers together.
        wall_s: from the run's beginning to its end; None while that is not known.
        workers: processes that ran tests side by side.
    """

    parts: Mapping[str, float]
    wall_s: float | None = None
    workers: int = 1

    @property
    def whole(self) -> dict[str, float]:
        """Every part, and ``other`` for the remaining time of the workers."""
        known = {name: self.parts.get(name, 0.0) for name in PARTS}
        had_s = 0.0 if self.wall_s is None else self.wall_s * self.workers
        return {**known, "other": max(0.0, had_s - sum(known.values()))}

    def to_json(self) -> dict[str, Any] | None:
        """Give JSON values; None where nothing was measured."""
        if self.wall_s is None:
            return None
        return {"wall": self.wall_s, "workers": self.workers, "parts": self.whole}

    @classmethod
    def from_json(cls, told: Mapping[str, Any] | None) -> Spent:
        """Read what :meth:`to_json` gave."""
        if told is None:
            return cls({})
        return cls({name: told["parts"][name] for name in PARTS}, told["wall"], told["workers"])

    def beside(self, other: Spent) -> Spent:
        """Give this run's and another's that ran at the same time, as one."""
        if self.wall_s is None or other.wall_s is None:
            return other if self.wall_s is None else self
        parts = {name: self.parts.get(name, 0.0) + other.parts.get(name, 0.0) for name in PARTS}
        return Spent(parts, max(self.wall_s, other.wall_s), self.workers + other.workers)

    @property
    def line(self) -> str:
        """Say it in a line, without what took next to nothing; nothing where nothing was measured."""
        if self.wall_s is None:
            return ""
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.whole.items() if seconds >= LEAST_S)
        return f"{self.wall_s:.1f} s on {count(self.workers, 'worker')}: {parts or 'nothing of note'}"

    @property
    def table(self) -> Iterator[str]:
        """Yield a line for each part: seconds, the share of all, and what it is."""
        all_s = sum(self.whole.values()) or 1.0
        for name, seconds in self.whole.items():
            yield f"{name:<12}{seconds:>9.1f} s{seconds / all_s:>6.0%}  {PARTS.get(name, OTHER)}"
