"""What else differs between two sides than their times: what they read, what they count, where they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_dsocr.foundation.words import count
from pytest_dsocr.perf.rounds import Measured

WORK = ("tokens.", "page.characters", "vision.views")
"""Quantities of the work itself: where they differ, times are of different work."""
NEARLY = {"_us": 0.03, "peak_bytes": 0.01}
"""How quantities end that are not quite the same each time, with the share that they may differ by."""
SHORT_US = 30
"""Microseconds of a stage's kernels that may always differ."""
CLOCK_SHARE = 0.05
"""By how much the median of a condition, such as a clock, has to differ to be told."""


@dataclass(frozen=True)
class Change:
    """One exact quantity that differs; None where a side has none."""

    quantity: str
    before: int | None
    after: int | None

    @property
    def is_work(self) -> bool:
        """Whether the sides do different work."""
        return self.quantity.startswith(WORK)

    @property
    def is_worse(self) -> bool:
        """Whether the second side does more for the same work."""
        return not self.is_work and self.before is not None and self.after is not None and self.after > self.before

    @property
    def told(self) -> str:
        """Give it in words."""
        sides = (("A", self.before), ("B", self.after))
        shown = ", ".join(f"{side} {'has none' if value is None else f'{value:,}'}" for side, value in sides)
        return f"{self.quantity}: {shown}" + (", which is worse" if self.is_worse else "")


def exact_changes(a: Mapping[str, int], b: Mapping[str, int]) -> list[Change]:
    """Give the counted quantities that differ; of a GPU's times and peak, by more than they always do."""
    names = dict.fromkeys((*a, *b))
    return [Change(name, a.get(name), b.get(name)) for name in names if not _equal(name, a.get(name), b.get(name))]


def _equal(name: str, a: int | None, b: int | None) -> bool:
    if a is None or b is None or a == b:
        return a == b
    share = next((share for end, share in NEARLY.items() if name.endswith(end)), 0.0)
    least = SHORT_US if name.endswith("_us") else 0
    return abs(a - b) <= (max(share * max(a, b), least) if share else 0)


def text_change(a: str, b: str) -> str:
    """Tell how two readings of the page differ; nothing where they do not."""
    if a == b:
        return ""
    same = next((k for k, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    sizes = f"A {count(len(a), 'character')}, B {count(len(b), 'character')}"
    return f"the two do not read the same: {sizes}, apart from character {same} on"


def other_changes(a: Measured, b: Measured) -> Iterator[str]:
    """Yield what differs of the sides' versions, machines and clocks."""
    for part in ("machine", "versions"):
        yield from _differences(a.identity.get(part, {}), b.identity.get(part, {}))
    ours, theirs = _conditions(a), _conditions(b)
    for name in (name for name in ours if name in theirs):
        if abs(theirs[name] - ours[name]) > CLOCK_SHARE * max(abs(ours[name]), abs(theirs[name])):
            yield f"{name}: A {ours[name]:.4g}, B {theirs[name]:.4g} (median of the rounds)"
    for label, side in (("A", a), ("B", b)):
        for why, rounds in _spoilt(side).items():
            yield f"{label}: {count(rounds, 'round')} not used: {why}"


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*a, *b)):
        if a.get(name) != b.get(name):
            yield f"{name}: A {a.get(name, 'has none')}, B {b.get(name, 'has none')}"


def _conditions(side: Measured) -> dict[str, float]:
    """Give the median of each number among the conditions of the good rounds; of load and waiting nothing is told."""
    found: dict[str, list[float]] = {}
    for one in side.good:
        for name, value in one.conditions.items():
            if isinstance(value, int | float) and name not in ("load", "waited_ms"):
                found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def _spoilt(side: Measured) -> dict[str, int]:
    """Count the rounds by why they are not used; numbers in the clauses are of single rounds."""
    found: dict[str, int] = {}
    for clause in (clause for one in side.rounds for clause in one.spoilt):
        why = "the process waited for a core" if "waited" in clause else clause
        found[why] = found.get(why, 0) + 1
    return found
