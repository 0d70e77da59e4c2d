"""Compare tensors: by all their values where both sides have them, else by the summaries that a recording keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from pytest_dsocr.compare.signs import IN_WORDS, Reason, Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.observation.observation import NotFinite, Seam
from pytest_dsocr.observation.summing import sample_positions

SHOWN_VALUES = 3

SHUFFLED_ERROR = 0.1
"""Values in other places give at least this relative error."""
RIGHT, RIGHT_SAMPLES = 1e-3, 6
"""A sampled value is right up to this share of the largest difference; where rows are, this number of the first 64."""
SAME_SIZE = 1e-3
"""The same values in other places have equal mean and norm up to drift; other values hardly ever do."""


def compare_seam(
    name: str, actual: Seam | None, expected: Seam | None, allowed: float, usual: float = math.inf
) -> Comparison:
    """Compare a seam of the subject with the reference's.

    The error is the norm of the difference over the norm of the reference: of all values where both sides have them,
    else estimated from the sketches, to 6 %. A drift above ``usual`` passes, and is marked as suspicious.
    """
    if expected is None:
        return not_compared(name, Reason.NOT_IN_REFERENCE)
    if actual is None:
        return not_compared(name, Reason.NOT_GIVEN)
    if actual.shape != expected.shape:
        measured = f"shape {list(actual.shape)}; the reference has {list(expected.shape)}"
        return Comparison(name, Verdict.WRONG, measured, math.inf, signs=frozenset((Sign.OTHER_SHAPE,)))
    if (actual.dtype, actual.sha256) == (expected.dtype, expected.sha256):
        return Comparison(name, Verdict.MATCH, f"every bit of {list(actual.shape)}", 0.0)
    error = relative_error(actual, expected)
    verdict = Verdict.DRIFT if error <= allowed else Verdict.WRONG
    measured = _not_finite(actual, expected) or f"relative error {error:.1e} (allowed {allowed:.0e})"
    signs = tuple(_signs(actual, expected, error))
    if usual < error <= allowed:
        signs = (*signs, Sign.SUSPICIOUS)
    details = (*(IN_WORDS[sign] for sign in signs), *anatomy(actual, expected))
    return Comparison(name, verdict, measured, error, details, frozenset(signs))


def relative_error(actual: Seam, expected: Seam) -> float:
    """Return the norm of the difference over that of ``expected``; infinite where either holds a NaN or infinity."""
    a, b = (actual.values, expected.values) if _whole(actual, expected) else (actual.sketch, expected.sketch)
    assert a is not None
    assert b is not None
    difference = float((a.double() - b.double()).norm())
    error = difference / expected.norm if expected.norm else (math.inf if difference else 0.0)
    return error if math.isfinite(error) else math.inf


def _whole(actual: Seam, expected: Seam) -> bool:
    return actual.values is not None and expected.values is not None


def _not_finite(actual: Seam, expected: Seam) -> str:
    """Say which side holds NaN or infinity, where it begins and how many there are; nothing where neither does."""
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


def _signs(actual: Seam, expected: Seam, error: float) -> Iterator[Sign]:
    if not math.isfinite(actual.norm) and math.isfinite(expected.norm):
        yield Sign.NOT_FINITE
    resized = abs(actual.norm - expected.norm) / (expected.norm or 1.0)
    moved = abs(actual.mean - expected.mean) / (expected.std or 1.0)
    if SHUFFLED_ERROR < error < math.inf and max(resized, moved) < SAME_SIZE:
        yield Sign.SHUFFLED
    if first_wrong_sample(actual, expected) >= RIGHT_SAMPLES:
        yield Sign.LATER_ROWS


def first_wrong_sample(actual: Seam, expected: Seam) -> int:
    """Return how many of the first sampled values are right: they lie in the order of a tensor's rows."""
    apart = (actual.sample - expected.sample).abs()
    wrong = (apart > RIGHT * apart.max()).nonzero()
    return int(wrong[0]) if len(wrong) else 0


def anatomy(actual: Seam, expected: Seam) -> Iterator[str]:
    """Yield the statistics of both sides, and the values that differ most among those sampled."""
    for statistic in ("mean", "std", "norm"):
        yield f"{statistic:<5}{getattr(actual, statistic):>14.6g}{getattr(expected, statistic):>14.6g} (reference)"
    apart = (actual.sample - expected.sample).abs()
    if (first := first_wrong_sample(actual, expected)) >= RIGHT_SAMPLES and len(actual.shape) > 1:
        position = int(sample_positions(math.prod(actual.shape))[first])
        rows = math.prod(actual.shape[:-1])
        yield f"right up to row {position // actual.shape[-1]} of {rows}, as far as it was sampled"
    differing = int((apart != 0).sum())
    yield f"{differing} of {len(apart)} sampled values differ, at most by {float(apart.max()):.3g}"
    positions = sample_positions(math.prod(actual.shape))
    for k in torch.argsort(apart, descending=True)[: min(SHOWN_VALUES, differing)].tolist():
        index = tuple(map(int, np.unravel_index(int(positions[k]), actual.shape)))  # torch's own imports sympy
        yield f"at {list(index)}: {float(actual.sample[k]):.6g}, the reference has {float(expected.sample[k]):.6g}"
