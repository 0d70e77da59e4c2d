"""Compare texts by their edit distance, and show where they first differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from pytest_dsocr.compare.degeneration import Astray, degenerations
from pytest_dsocr.compare.diff import diff
from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict

UNRELATED_FROM, UNRELATED_SHARE = 0.1, 0.5
"""A text that differs within the first tenth, and in more than half of its characters, is not of this page."""


@dataclass(frozen=True)
class _Apart:
    """How far two texts are apart."""

    at: int
    """The first character that differs."""
    edits: int
    share: float
    """Of the reference's length."""

    @classmethod
    def of(cls, mine: str, theirs: str) -> _Apart:
        at = next(k for k, (a, b) in enumerate(zip_longest(mine, theirs)) if a != b)
        edits = Levenshtein.distance(mine, theirs)
        return cls(at, edits, edits / len(theirs) if theirs else math.inf)


def compare_text(mine: str, theirs: str, allowed: float) -> Comparison:
    """Compare two outputs of a model as text, with the signs of a degenerate one.

    Args:
        mine: the subject's, decoded, with its markup.
        theirs: the reference's.
        allowed: the edit distance over the reference's length that is DRIFT; no text at all never is.
    """
    if mine == theirs:
        return _equal("text", theirs)
    apart = _Apart.of(mine, theirs)
    astray = [*degenerations(mine, theirs)]
    other = apart.at < UNRELATED_FROM * len(theirs) and apart.share > UNRELATED_SHARE
    if mine.strip() and other and not theirs.startswith(mine):
        astray.append(Astray(Sign.UNRELATED, f"it reads something else from character {apart.at} on"))
    if theirs and mine.startswith(theirs):
        more = len(mine) - len(theirs)
        astray.append(Astray(Sign.GOES_ON, f"it goes on behind the reference's end, for {more} characters"))
    empty = bool(theirs.strip()) and not mine.strip()
    verdict = Verdict.DRIFT if apart.share <= allowed and not empty else Verdict.WRONG
    measured = "; ".join([*(one.sign for one in astray), _measured(mine, theirs, apart, allowed)])
    signs = frozenset(one.sign for one in astray)
    return Comparison("text", verdict, measured, None, tuple(map(str, astray)), signs, diff=diff(mine, theirs))


def compare_content(what: str, mine: str, theirs: str, allowed: float) -> Comparison:
    """Compare two texts by their edit distance over the reference's length alone."""
    if mine == theirs:
        return _equal(what, theirs)
    apart = _Apart.of(mine, theirs)
    verdict = Verdict.DRIFT if apart.share <= allowed else Verdict.WRONG
    return Comparison(what, verdict, _measured(mine, theirs, apart, allowed), diff=diff(mine, theirs))


def _equal(what: str, theirs: str) -> Comparison:
    return Comparison(what, Verdict.MATCH, f"{len(theirs)} characters")


def _measured(mine: str, theirs: str, apart: _Apart, allowed: float) -> str:
    where = f"from character {apart.at} of {len(theirs)} on"
    length = f"; the subject has {len(mine)}" if len(mine) != len(theirs) else ""
    return f"edit distance {apart.edits}, {apart.share:.2%} (allowed {allowed:.2%}), {where}{length}"
