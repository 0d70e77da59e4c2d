"""Systematic errors, which fewer bits do not cause and no budget covers."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pytest_dsocr.base.words import listed
from pytest_dsocr.contract.markup import Box

MARKUP = re.compile(r"<\|ref\|>.*?<\|/ref\|>|<\|det\|>.*?<\|/det\|>", re.DOTALL)
EACH, TIMES, IN_ALL, PASSAGE = 0.8, 3, 6, 8
"""Limits of a habit. At least TIMES occurrences and a share of EACH make a systematic misreading of one character, and
IN_ALL such errors make a habit of a page. Longer missing stretches than PASSAGE are passages, not characters."""
BOXES, MOVED, ON_LINE, FARTHEST = 4, 0.8, 0.9, 1e6
"""Limits of a shared move: number of boxes, share of coordinates that moved, and share of the squared moves that one
shift and one scale explain."""


class Habit(NamedTuple):
    """Systematic misreading of a character: as another one, as nothing, or as itself with an addition."""

    old: str
    new: str
    times: int
    of: int

    def __str__(self) -> str:
        return f"{self.old!r} becomes {self.new!r} {self.times} of {self.of} times"


def habits(actual: str, expected: str) -> str:
    """Return the characters that are misread in the same way nearly each time; empty if these are few.

    Markup does not count: a box that moved changes the same digits again and again.
    """
    own, other = (MARKUP.sub("", text) for text in (actual, expected))
    found = sorted(_habits(own, other), key=lambda one: -one.times)
    return listed([*map(str, found)], 3) if sum(one.times for one in found) >= IN_ALL else ""


def _habits(actual: str, expected: str) -> Iterator[Habit]:
    edits: Counter[tuple[str, str]] = Counter()
    for edit in Levenshtein.opcodes(expected, actual):
        old, new = expected[edit.src_start : edit.src_end], actual[edit.dest_start : edit.dest_end]
        if edit.tag == "replace":
            edits.update(zip(old, new, strict=True))
        elif edit.tag == "delete" and len(old) <= PASSAGE:
            edits.update((character, "") for character in old)
        elif edit.tag == "insert" and len(new) <= PASSAGE:
            before, after = expected[max(edit.src_start - 1, 0) : edit.src_start], expected[edit.src_start :][:1]
            edits.update((one, one + new) for one in before)
            edits.update((one, new + one) for one in after)
    of = Counter(expected)
    for (old, new), times in edits.items():
        if of[old] >= TIMES and times >= EACH * of[old]:
            yield Habit(old, new, times, of[old])


def shared_move(pairs: Sequence[tuple[Box, Box]]) -> str:
    """Describe a shift and scale that nearly all boxes of a page have in common; return an empty text if there is none.

    Args:
        pairs: the subject's boxes, each with its partner.
    """
    if len(pairs) < BOXES:
        return ""
    named = zip(("across", "down"), (slice(0, None, 2), slice(1, None, 2)), strict=True)
    return ", ".join(filter(None, (_line(name, pairs, axis) for name, axis in named)))


def _line(name: str, pairs: Sequence[tuple[Box, Box]], axis: slice) -> str:
    found, places = (np.array([pair[k][axis] for pair in pairs], float).ravel() for k in (0, 1))
    if not (np.abs([places, found]) < FARTHEST).all():  # a model may write 1e300, or NaN
        return ""
    moves = found - places
    if np.count_nonzero(moves) < MOVED * len(moves):
        return ""
    terms = np.stack([np.ones_like(places), places], axis=1)
    fit, *_ = np.linalg.lstsq(terms, moves, rcond=None)
    rest = moves - terms @ fit
    if rest @ rest > (1 - ON_LINE) * (moves @ moves):
        return ""
    return f"{fit[0]:+.0f}/999 and {round(fit[1], 3) + 0.0:+.1%} {name}"
