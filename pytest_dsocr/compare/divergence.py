"""Where a case first breaks, in the order of the stages: what is wrong later may follow from the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_dsocr.compare.symptoms import likely_cause
from pytest_dsocr.compare.symptoms.scene import BEGUN, Scene
from pytest_dsocr.compare.verdict import Comparison, Verdict


@dataclass(frozen=True)
class Divergence:
    """The first comparison that is WRONG, and what to check."""

    first: Comparison
    right: int
    """How many comparisons before it were made, all of them right."""
    cause: str
    begins: str = ""
    """The comparison in front of it, inside its tolerance, that the error begins at; empty where it is the first."""


def first_divergence(comparisons: Sequence[Comparison]) -> Divergence | None:
    """Find the first WRONG comparison, in the order of the stages; None where nothing is WRONG."""
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            origin = _origin(comparisons[: place + 1])
            cause = likely_cause(Scene(origin, {one.what: one for one in comparisons}))
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            if origin is comparison:
                return Divergence(comparison, right, cause)
            return Divergence(comparison, right, f"{_begins(origin)}: {cause}", origin.what)
    return None


def _origin(comparisons: Sequence[Comparison]) -> Comparison:
    """Find where the error of the last one, the first that is WRONG, begins: from block to block it grows."""
    wrong = comparisons[-1]
    if wrong.error is None or math.isinf(wrong.error):
        return wrong
    return next(one for one in comparisons if one.error is not None and one.error >= BEGUN * wrong.error)


def _begins(origin: Comparison) -> str:
    return f"it begins at {origin.what} with a relative error of {origin.error:.0e}, within the tolerance"
