"""Compare how a stage rounds with how the vendor's kernels round on the same input; see ``observation.rounding``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation.rounding import Effect, Rounding

SUFFIX = ".rounding"
"""Behind the stage in a comparison's name."""


@dataclass(frozen=True)
class Limits:
    """From where on a known mistake's effect is there, and how large a bias may be."""

    share: tuple[float, float]
    z: float
    bias: float


OF_BLOCKS = Limits((0.6, 1.5), 6, 10.0)
OF_STAGES = Limits((0.8, 1.25), 40, math.inf)
"""Measured on H100s, ``mini`` and full size, 20 and 3 pages: fused attention, flash-attn, the fast session, other sums,
float32 throughout, and no autocast. In blocks no effect that is not there comes to a z of 1 inside of these shares, and
the bias to 3.3; of whole stages effects come to 20, and norms without autocast to a bias of 112. Mistakes that are less
than a thousand times below rounding come to 11 and more in blocks, to 54 and more in stages."""
AS_LIKELY = 20.0
"""Effects whose likelihood's logarithm is no further than this below the best one's cannot be told from it."""


def compare_rounding(stage: str, found: Rounding, allowed: float) -> Comparison:
    """Compare one stage; ``allowed`` is how many times the vendor's error its own may be.

    Where a budget pays for fewer bits, known mistakes alone are WRONG.
    """
    name = f"{stage}{SUFFIX}"
    if not found.differing:
        return Comparison(name, Verdict.MATCH, f"every bit of {found.parts} parts, as the vendor's kernels round")
    effects, most_bias = known_effects(found), limits_of(found).bias
    if found.fewer_bits:
        allowed = math.inf
    is_wrong = bool(effects) or found.ratio > allowed or found.bias > most_bias
    limit = "on the budget" if found.fewer_bits else f"allowed {allowed:g}"
    measured = f"errs {found.ratio:.2f} times as much as the vendor's kernels ({limit})"
    if most_bias < math.inf:
        measured += f", with a bias of {found.bias:.1f} (allowed {most_bias:g})"
    verdict = Verdict.WRONG if is_wrong else Verdict.DRIFT
    return Comparison(name, verdict, measured, None, tuple(_details(found, effects)))


def limits_of(found: Rounding, effect: Effect | None = None) -> Limits:
    """Give the limits that hold for what was computed again, or for an effect in it."""
    is_whole = found.is_whole if effect is None else effect.is_whole
    return OF_STAGES if is_whole or found.fewer_bits else OF_BLOCKS


def _is_there(effect: Effect, limits: Limits) -> bool:
    return limits.share[0] < effect.share < limits.share[1] and effect.z >= limits.z


def known_effects(found: Rounding) -> tuple[Effect, ...]:
    """Give the known mistakes whose effect is there, the likeliest first; several where they cannot be told apart."""
    there = [one for one in found.effects if _is_there(one, limits_of(found, one))]
    there.sort(key=lambda one: -one.likelihood)
    return tuple(one for one in there if one.likelihood >= there[0].likelihood - AS_LIKELY)


def _details(found: Rounding, effects: tuple[Effect, ...]) -> Iterator[str]:
    yield f"against float32 on its own input; the largest is at {found.part}, {found.differing:.1%} of values differ"
    for one in effects:
        yield f"{one.share:.3f} +- {one.error:.3f} (z = {one.z:.0f}) of the effect of {one.words}"
