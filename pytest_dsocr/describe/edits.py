"""Edit scripts between two sequences, run-length coded: an edit that comes at several places is one edit."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from rapidfuzz.distance import Levenshtein

from pytest_dsocr.describe.description import ENOUGH

Element = TypeVar("Element", bound=Hashable)
LONGEST = 8_000
"""Largest number of items from the first difference to the last: the memory of a script grows with its square."""


class Edit(NamedTuple):
    """A stretch of the expected sequence that the subject has otherwise, at one or more places."""

    old: tuple[Hashable, ...]
    """Empty if it is inserted."""
    new: tuple[Hashable, ...]
    """Empty if it is left out."""
    places: tuple[int, ...]
    """Positions in the expected sequence."""

    @property
    def size(self) -> int:
        """Number of items that it changes; equal ones in a row count once."""
        return max(_runs(self.old), _runs(self.new)) * len(self.places)


def described_by(edits: Sequence[Edit], most: int, longest: int) -> list[Edit]:
    """Return the first edits that explain enough of a difference; none if they are many, or replace long stretches."""
    few = next((k for k in range(1, min(len(edits), most) + 1) if explained(edits, k) >= ENOUGH), 0)
    is_short = all(min(_runs(one.old), _runs(one.new)) <= longest for one in edits[:few])
    return [*edits[:few]] if is_short else []


def _runs(items: Sequence[Hashable]) -> int:
    return sum(1 for _ in groupby(items))


def edit_script(actual: Sequence[Element], expected: Sequence[Element]) -> list[Edit]:
    """Return the edits that turn the expected sequence into the actual one, the largest first; none if too long."""
    at = common(actual, expected)
    behind = min(common(actual[::-1], expected[::-1]), min(len(actual), len(expected)) - at)
    own, other = actual[at : len(actual) - behind], expected[at : len(expected) - behind]
    if max(len(own), len(other)) > LONGEST:
        return []
    places: dict[tuple[tuple[Element, ...], tuple[Element, ...]], list[int]] = {}
    for first, old, new in _stretches(own, other):
        places.setdefault((old, new), []).append(at + first)
    edits = [Edit(old, new, tuple(found)) for (old, new), found in places.items()]
    return sorted(edits, key=lambda one: -one.size)


def common(actual: Sequence[Element], expected: Sequence[Element]) -> int:
    """Return the number of equal items at the start."""
    least = min(len(actual), len(expected))
    return next((k for k in range(least) if actual[k] != expected[k]), least)


def _stretches(
    actual: Sequence[Element], expected: Sequence[Element]
) -> Iterator[tuple[int, tuple[Element, ...], tuple[Element, ...]]]:
    """Yield the place, the old and the new items of each stretch that differs; neighbouring edits are one."""
    start, old, new, end = 0, list[Element](), list[Element](), -1
    for edit in Levenshtein.opcodes(expected, actual):
        if edit.tag == "equal":
            continue
        if edit.src_start != end and (old or new):
            yield start, tuple(old), tuple(new)
            old, new = [], []
        start = start if old or new else edit.src_start
        old += expected[edit.src_start : edit.src_end]
        new += actual[edit.dest_start : edit.dest_end]
        end = edit.src_end
    if old or new:
        yield start, tuple(old), tuple(new)


class Move(NamedTuple):
    """A block that stands elsewhere."""

    size: int
    old: int
    """Place in the expected sequence."""
    new: int
    """Place in the actual sequence."""


def moved(actual: Sequence[Element], expected: Sequence[Element]) -> Move | None:
    """Return the shorter of two neighbouring blocks that are exchanged; None if something else differs."""
    first, of = common(actual, expected), len(expected)
    if len(actual) != of or first == of:
        return None
    behind = of - common(actual[::-1], expected[::-1])
    own, other = actual[first:behind], expected[first:behind]
    for k in range(1, len(other)):
        if other[k] == own[0] and own == other[k:] + other[:k]:  # type: ignore[operator]
            rest = len(other) - k
            return Move(k, first, first + rest) if k <= rest else Move(rest, first + k, first)
    return None


def explained(edits: Sequence[Edit], count: int) -> float:
    """Return the share of the changed items that the first edits change."""
    every = sum(one.size for one in edits)
    return sum(one.size for one in edits[:count]) / every if every else 1.0
