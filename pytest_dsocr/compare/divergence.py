"""Where a case first breaks, in the order of the stages: what is wrong later may follow from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_dsocr.compare.symptoms import likely_cause
from pytest_dsocr.compare.symptoms.scene import Scene
from pytest_dsocr.compare.verdict import Comparison, Verdict


@dataclass(frozen=True)
class Divergence:
    """The first comparison that is WRONG, and what to check."""

    first: Comparison
    right: int
    """How many comparisons before it were made, all of them right."""
    cause: str


def first_divergence(comparisons: Sequence[Comparison]) -> Divergence | None:
    """Find the first WRONG comparison, in the order of the stages; None where nothing is WRONG."""
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            scene = Scene(comparison, {one.what: one for one in comparisons})
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            return Divergence(comparison, right, likely_cause(scene))
    return None
