"""A prompt of one token: the vendor's gate is shut, and the cache begins with one position.

A subject that takes no such prompt raises ``NotImplementedError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, as_expected, not_compared
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.plugin.check import Check

from .walk import Walk, compare_ways

if TYPE_CHECKING:
    from pytest_dsocr.compare.tolerances import Tolerances

pytestmark = pytest.mark.dsocr_level("L2")


def test_vision_gives_nothing(walk: Walk, dsocr_check: Check) -> None:
    seams = sorted(walk.subject.vision(walk.text_only()))
    dsocr_check([as_expected("vision_fusion/one token", seams, [], "for the gate is shut")])


def test_it_is_the_beginning_of_a_longer_one(walk: Walk, limits: Tolerances, dsocr_check: Check) -> None:
    """BOS, then a token as a step, against both in one call."""
    try:
        dsocr_check(_both_ways(walk, limits))
    except SubjectFaultError as fault:
        if not isinstance(fault.__cause__, NotImplementedError):
            raise
        dsocr_check([not_compared("prefill/one token", Reason.NOT_OFFERED)])


def _both_ways(walk: Walk, limits: Tolerances) -> list[Comparison]:
    state, _ = walk.subject.prefill(walk.text_only(), None)
    length = state.cache.length
    [found] = walk.steps(state, walk.tokens[:1])
    _, expected = walk.subject.prefill(walk.text_only(walk.tokens[:1]), None)
    return [
        as_expected("cache/length", length, 1, "the prompt's tokens"),
        compare_ways("logits/second token", found, expected, limits.logits),
    ]
