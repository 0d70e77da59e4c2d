"""Texts compared: by their edit distance, from where they part on."""

from __future__ import annotations

import math
from itertools import zip_longest

from rapidfuzz.distance import Levenshtein

from pytest_dsocr.compare.degeneration import degenerations
from pytest_dsocr.compare.verdict import Comparison, Verdict, shown

LEAD_CHARACTERS = 20
SHOWN_CHARACTERS = 60


def compare_text(mine: str, theirs: str, allowed: float) -> Comparison:
    """Compare two outputs of a model as text, and name what shows that one has gone astray.

    Args:
        mine: the subject's, decoded, with its markup.
        theirs: the reference's.
        allowed: the edit distance over the reference's length that is DRIFT; no text at all never is.
    """
    found = compare_content("text", mine, theirs, allowed)
    astray = tuple(degenerations(mine, theirs)) if mine != theirs else ()
    verdict = Verdict.WRONG if theirs.strip() and not mine.strip() else found.verdict
    kinds = [sentence.partition(":")[0] for sentence in astray]
    return Comparison("text", verdict, "; ".join([*kinds, found.measured]), None, (*astray, *found.details))


def compare_content(what: str, mine: str, theirs: str, allowed: float) -> Comparison:
    """Compare two texts by their edit distance over the reference's length alone."""
    if mine == theirs:
        return Comparison(what, Verdict.MATCH, f"{len(theirs)} characters")
    edits = Levenshtein.distance(mine, theirs)
    share = edits / len(theirs) if theirs else math.inf
    at = next(k for k, (a, b) in enumerate(zip_longest(mine, theirs)) if a != b)
    measured = (
        f"parts at character {at} of {len(theirs)} (the subject has {len(mine)}); "
        f"edit distance {edits}, {share:.2%} (allowed {allowed:.2%})"
    )
    lines = tuple(
        f"{side:<10}{shown(text[max(0, at - LEAD_CHARACTERS) :], SHOWN_CHARACTERS)!r}"
        for side, text in (("subject", mine), ("reference", theirs))
    )
    return Comparison(what, Verdict.DRIFT if share <= allowed else Verdict.WRONG, measured, None, lines)
