"""Comparison of tensors: by all values if both sides have them, otherwise by the summaries in a recording.

It also compares a stage's rounding with the vendor's kernels on the same input; see ``Rounding``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from pytest_dsocr.compare.verdict import AXES_OF_ONE, Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.records.reference_result import NotFinite, Seam
from pytest_dsocr.records.subject_result import Effect, Rounding
from pytest_dsocr.records.summing import sample_positions

SHOWN_VALUES = 3

SHUFFLED_ERROR = 0.1
"""Least relative error of values in other places."""
RIGHT, RIGHT_ROWS = 1e-3, 0.1
"""A value is right up to this share of the largest difference; first rows are named if they are this share of all."""
ONE_FACTOR = 0.8
"""The share of the error in the norm itself from which on one factor explains most of it."""
SAME_SIZE = 2e-6
"""Largest relative drift of mean and norm for the same values in other places: that of correct implementations.

A page stretched over another grid drifts by 4e-5.
"""
REORDERED_ERROR, OF_ERROR = 0.01, 1e-3
"""Least relative error of views in another order, and the share of it that mean and norm may drift. Noise of this size
adds half of its square to the norm, which is more."""


def compare_seam(
    name: str, actual: Seam | None, expected: Seam | None, allowed: float, usual: float = math.inf
) -> Comparison:
    """Compare a seam of the subject with the reference's.

    The error is the norm of the difference over the norm of the reference. It uses all values if both sides have them;
    otherwise the sketches estimate it to 6 %. A drift above ``usual`` passes, and is marked as suspicious.
    """
    if expected is None:
        return not_compared(name, Reason.NOT_IN_REFERENCE)
    if actual is None:
        return not_compared(name, Reason.NOT_GIVEN)
    if actual.shape != expected.shape:
        measured = f"shape {list(actual.shape)}; the reference has {list(expected.shape)}{_alike(actual, expected)}"
        return Comparison(name, Verdict.WRONG, measured, math.inf, signs=frozenset((Symptom.OTHER_SHAPE,)))
    if (actual.dtype, actual.sha256) == (expected.dtype, expected.sha256):
        return Comparison(name, Verdict.MATCH, f"every bit of {list(actual.shape)}", 0.0, allowed=allowed)
    error = relative_error(actual, expected)
    verdict = Verdict.DRIFT if error <= allowed else Verdict.WRONG
    measured = _not_finite(actual, expected) or f"relative error {error:.1e} (allowed {allowed:.0e})"
    signs = tuple(_signs(actual, expected, error))
    if usual < error <= allowed:
        signs = (*signs, Symptom.SUSPICIOUS)
    details = (*(sign.sentence for sign in signs if sign.sentence), *anatomy(actual, expected))
    return Comparison(name, verdict, measured, error, details, frozenset(signs), allowed=allowed)


def relative_error(actual: Seam, expected: Seam) -> float:
    """Return the norm of the difference over that of ``expected``; infinite if either has a NaN or infinity."""
    a, b = actual.sketch, expected.sketch
    if actual.values is not None and expected.values is not None:
        a, b = actual.values, expected.values
    difference = float((a.double() - b.double()).norm())
    error = difference / expected.norm if expected.norm else (math.inf if difference else 0.0)
    return error if math.isfinite(error) else math.inf


def _alike(actual: Seam, expected: Seam) -> str:
    """Return what two different shapes have in common, to be added to a sentence, or an empty text."""
    if [size for size in actual.shape if size != 1] == [size for size in expected.shape if size != 1]:
        return f": {AXES_OF_ONE}"
    if sorted(actual.shape) == sorted(expected.shape):
        return ": the same axes in another order"
    return ": as many values" if math.prod(actual.shape) == math.prod(expected.shape) else ""


def _not_finite(actual: Seam, expected: Seam) -> str:
    """Return which side has NaN or infinity, the first place and the number; empty if neither has."""
    own, others = _spoilt(actual), _spoilt(expected)
    if own and others:
        return f"{own}; the reference holds them as well: {others}"
    if own:
        return f"{own}; the reference is finite"
    return f"finite; the reference is not: {others}" if others else ""


def _spoilt(seam: Seam) -> str:
    if math.isfinite(seam.norm):
        return ""
    found = seam.not_finite
    if found is None and seam.values is not None:
        found = NotFinite.among(seam.values.double().numpy())
    return str(found or "NaN or infinity, in places that its summary does not tell")


def _signs(actual: Seam, expected: Seam, error: float) -> Iterator[Symptom]:
    if not math.isfinite(actual.norm) and math.isfinite(expected.norm):
        yield Symptom.NOT_FINITE
    resized, moved = _drifts(actual, expected)
    if SHUFFLED_ERROR < error < math.inf and max(resized, moved) < SAME_SIZE:
        yield Symptom.SHUFFLED
    if resized > ONE_FACTOR * error and error < math.inf:
        yield Symptom.SCALED
    if right_rows(actual, expected):
        yield Symptom.LATER_ROWS


def is_reordered(actual: Seam, expected: Seam) -> bool:
    """Return whether two seams have the same values in other places, as views in another order have."""
    error = relative_error(actual, expected)
    return REORDERED_ERROR < error < math.inf and max(_drifts(actual, expected)) < OF_ERROR * error


def _drifts(actual: Seam, expected: Seam) -> tuple[float, float]:
    """Return the relative drift of the norm, and that of the mean in standard deviations."""
    resized = abs(actual.norm - expected.norm) / (expected.norm or 1.0)
    return resized, abs(actual.mean - expected.mean) / (expected.std or 1.0)


def right_rows(actual: Seam, expected: Seam) -> int:
    """Return how many first rows are right, if all later ones are wrong, by every value; else 0."""
    if actual.values is None or expected.values is None or len(actual.shape) < 2:
        return 0
    apart = (actual.values.float() - expected.values.float()).flatten(0, -2).abs().amax(-1)
    right = (apart <= RIGHT * apart.max()).long()
    first = int(right.argmin())
    return first if first >= RIGHT_ROWS * len(right) and int(right.sum()) == first < len(right) else 0


def anatomy(actual: Seam, expected: Seam) -> Iterator[str]:
    """Yield the statistics of both sides, and the values that differ most among those sampled."""
    for statistic in ("mean", "std", "norm"):
        yield f"{statistic:<5}{getattr(actual, statistic):>14.6g}{getattr(expected, statistic):>14.6g} (reference)"
    apart = (actual.sample - expected.sample).abs()
    if first := right_rows(actual, expected):
        yield f"right up to row {first - 1} of {math.prod(actual.shape[:-1])}"
    differing = int((apart != 0).sum())
    yield f"{differing} of {len(apart)} sampled values differ, at most by {float(apart.max()):.3g}"
    positions = sample_positions(math.prod(actual.shape))
    for k in torch.argsort(apart, descending=True)[: min(SHOWN_VALUES, differing)].tolist():
        index = tuple(map(int, np.unravel_index(int(positions[k]), actual.shape)))  # torch's own imports sympy
        yield f"at {list(index)}: {float(actual.sample[k]):.6g}, the reference has {float(expected.sample[k]):.6g}"


@dataclass(frozen=True)
class Limits:
    """Thresholds from which a known mistake's effect is present, and the largest bias."""

    share: tuple[float, float]
    z: float
    bias: float


OF_BLOCKS = Limits((0.6, 1.5), 6, 10.0)
OF_STAGES = Limits((0.8, 1.25), 40, math.inf)
"""Measured on H100s with 20 pages of ``mini`` and 3 at full size: fused attention, flash-attn, the fast engine, other
sums, float32 throughout, no autocast. Within these shares, effects of absent mistakes reach a z of 1 in blocks and 20
in stages. The bias reaches 3.3 in blocks, and 112 in norms without autocast. Mistakes down to a thousandth of rounding
have a z of at least 11 in blocks and 54 in stages."""
AS_LIKELY = 20.0
"""Largest difference of log-likelihoods to the best effect at which two effects cannot be told apart."""


def compare_rounding(stage: str, found: Rounding, allowed: float) -> Comparison:
    """Compare one stage; ``allowed`` is how many times the vendor's error its own may be.

    Where a budget pays for fewer bits, known mistakes alone are WRONG.
    """
    name = ComparisonKind.ROUNDING.name_of(stage)
    if not found.differing:
        return Comparison(name, Verdict.MATCH, f"every bit of {found.parts} parts, as the vendor's kernels round")
    effects, most_bias = known_effects(found), limits_of(found).bias
    if found.fewer_bits:
        allowed = math.inf
    is_wrong = bool(effects) or found.ratio > allowed or found.bias > most_bias
    limit = "on the budget" if found.fewer_bits else f"allowed {allowed:g}"
    unit = (
        "units of rounding, where the vendor's kernels are exact"
        if found.is_exact
        else "times as much as the vendor's kernels"
    )
    measured = f"errs {found.ratio:.2f} {unit} ({limit})"
    if most_bias < math.inf:
        measured += f", with a bias of {found.bias:.1f} (allowed {most_bias:g})"
    verdict = Verdict.WRONG if is_wrong else Verdict.DRIFT
    return Comparison(name, verdict, measured, None, tuple(_details(found, effects)))


def limits_of(found: Rounding, effect: Effect | None = None) -> Limits:
    """Return the limits for the recomputed parts, or for an effect in them."""
    is_whole = found.is_whole if effect is None else effect.is_whole
    return OF_STAGES if is_whole or found.fewer_bits else OF_BLOCKS


def known_effects(found: Rounding) -> tuple[Effect, ...]:
    """Return the known mistakes whose effect is present, likeliest first; several if they cannot be told apart."""
    limited = ((one, limits_of(found, one)) for one in found.effects)
    there = [one for one, most in limited if most.share[0] < one.share < most.share[1] and one.z >= most.z]
    there.sort(key=lambda one: -one.likelihood)
    return tuple(one for one in there if one.likelihood >= there[0].likelihood - AS_LIKELY)


def _details(found: Rounding, effects: tuple[Effect, ...]) -> Iterator[str]:
    yield f"against float32 on its own input; the largest is at {found.part}, {found.differing:.1%} of values differ"
    for one in effects:
        yield f"{one.share:.3f} +- {one.error:.3f} (z = {one.z:.0f}) of the effect of {one.words}"
