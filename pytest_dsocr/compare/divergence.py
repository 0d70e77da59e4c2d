"""Where a case first breaks: the comparisons stand in the stages' order, and what follows the first comes of it."""

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
    """Comparisons in front of it that are right."""
    cause: str


def first_divergence(comparisons: Sequence[Comparison]) -> Divergence | None:
    """Give where ``comparisons``, in the stages' order, first break, or None where nothing is WRONG."""
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            scene = Scene(comparison, {one.what: one for one in comparisons})
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            return Divergence(comparison, right, likely_cause(scene))
    return None
