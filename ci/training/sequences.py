"""How far two sequences are apart, how long they are alike, how far one is out of order, how often it repeats."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

import numpy as np


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and replacements of characters that make ``b`` of ``a``: Levenshtein's distance.

    One row of the table at a time, so memory is linear. A row's own insertions are a running minimum.
    """
    characters = np.frombuffer(b.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    at = np.arange(len(b) + 1)
    row = at
    for k, character in enumerate(a, start=1):
        replaced = row[:-1] + (characters != ord(character))
        row = np.append(k, np.minimum(replaced, row[1:] + 1))
        row = np.minimum.accumulate(row - at) + at
    return int(row[-1])


def out_of_order(positions: Sequence[int]) -> int:
    """Count the fewest of ``positions`` that must be taken out for the rest to ascend."""
    ends: list[int] = []  # of the ascending runs of each length, the smallest last position
    for position in positions:
        at = bisect_left(ends, position)
        ends[at : at + 1] = [position]
    return len(positions) - len(ends)


def common_prefix(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Count the items before the first that differs, or before the shorter one's end."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def repeats(items: Sequence[Hashable]) -> int:
    """Give how often a run of items, of whatever length, comes in a row at most; 1 where nothing repeats at once.

    ``a b a b a b c`` repeats 3 times. Time is quadratic in the number of items.
    """
    most = min(1, len(items))
    for period in range(1, len(items) // 2 + 1):
        streak = 0
        for item, earlier in zip(items[period:], items, strict=False):
            streak = streak + 1 if item == earlier else 0
            most = max(most, 1 + streak // period)
    return most
