"""The order in which mistakes that may change a text are tried: by how many are likely to be found in a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_dsocr.explain.catalogue import seen
from pytest_dsocr.explain.mistake import ALL, Mistake
from pytest_dsocr.models.spec import ModelSpec

SOON = ("text", "read")
"""Groups that need no stage again."""
CHEAP, AFTER_BLOCKS, DEAR, NOTHING = 0.1, 0.3, 1.0, 0.003
"""CPU seconds to try a mistake of most stages, of the first encoder after its blocks, of its blocks, and of the loop.

Measured with ``mini`` on a page without crops: 0.05 for steps and fusion, 0.08 for the prompt, 0.11 for CLIP. The end
of SAM took 0.28, the rest of SAM 0.7 to 1.0.
"""
UNSEEN = 0.5
"""Likelihood of all unseen mistakes of a group together, over that of its seen ones."""
IN_PART = 0.1
"""Likelihood of a mistake in one block or in steps alone, over that of the mistake everywhere."""


def likeliest_first(found: Iterable[Mistake], family: ModelSpec) -> Sequence[Mistake]:
    """Return mistakes in the order of their likelihood over their cost.

    A mistake that was seen in ports is likelier in ports of this model than in those that it is based on. The others of
    its group share the likelihood of its seen ones.
    """
    every, known = [*found], seen(family)
    ranks = {
        one.mistake: 1 + (one.family != family.name or not family.based_on) + (not one.topic) for one in reversed(known)
    }
    seen_of = Counter(one.group for one in every if one.id in ranks)
    unseen_of = Counter(one.group for one in every if one.id not in ranks and one.block is None and not one.in_steps)

    def worth(one: Mistake) -> float:
        own = replace(one, block=None).id
        shared = UNSEEN * max(1, seen_of[one.group]) / max(1, unseen_of[one.group])
        likely = 1 / ranks[own] if own in ranks else min(shared, UNSEEN)
        is_in_part = one.block is not None or (one.in_steps and own not in ranks)
        return likely * (IN_PART if is_in_part else 1.0) / seconds(one, family)

    return sorted(every, key=worth, reverse=True)


def seconds(one: Mistake, family: ModelSpec) -> float:
    """Return about how many CPU seconds it takes to try a mistake on a small page."""
    if one.group in SOON:
        return NOTHING
    if one.group == family.of_views[0].name:
        return AFTER_BLOCKS if one.part == "back" and one.block is None else DEAR
    return DEAR if one.group in ("pixels", ALL) else CHEAP
