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
"""Up to this share of the largest difference a sampled value is right; so many of the first 64 are, where rows are."""
SAME_SIZE = 1e-3
"""The same values in other places have equal mean and norm up to drift; other values hardly ever do."""


def compare_seam(
    name: str, mine: Seam | None, theirs: Seam | None, allowed: float, usual: float = math.inf
) -> Comparison:
    """Compare a seam of the subject with the reference's.

    The error is the norm of the difference over the norm of the reference: of all values where both sides have them,
    else estimated from the sketches, to 6 %. A drift above ``usual`` passes, and is marked as suspicious.
    """
    if theirs is None:
        return not_compared(name, Reason.NOT_IN_REFERENCE)
    if mine is None:
        return not_compared(name, Reason.NOT_GIVEN)
    if mine.shape != theirs.shape:
        measured = f"shape {list(mine.shape)}; the reference has {list(theirs.shape)}"
        return Comparison(name, Verdict.WRONG, measured, math.inf, signs=frozenset((Sign.OTHER_SHAPE,)))
    if (mine.dtype, mine.sha256) == (theirs.dtype, theirs.sha256):
        return Comparison(name, Verdict.MATCH, f"every bit of {list(mine.shape)}", 0.0)
    error = relative_error(mine, theirs)
    verdict = Verdict.DRIFT if error <= allowed else Verdict.WRONG
    measured = _not_finite(mine, theirs) or f"relative error {error:.1e} (allowed {allowed:.0e})"
    signs = tuple(_signs(mine, theirs, error))
    if usual < error <= allowed:
        signs = (*signs, Sign.SUSPICIOUS)
    details = (*(IN_WORDS[sign] for sign in signs), *anatomy(mine, theirs))
    return Comparison(name, verdict, measured, error, details, frozenset(signs))


def relative_error(mine: Seam, theirs: Seam) -> float:
    """Give the norm of the difference over the norm of ``theirs``; infinite where either holds a NaN or infinity."""
    a, b = (mine.values, theirs.values) if _whole(mine, theirs) else (mine.sketch, theirs.sketch)
    assert a is not None
    assert b is not None
    difference = float((a.double() - b.double()).norm())
    error = difference / theirs.norm if theirs.norm else (math.inf if difference else 0.0)
    return error if math.isfinite(error) else math.inf


def _whole(mine: Seam, theirs: Seam) -> bool:
    return mine.values is not None and theirs.values is not None


def _not_finite(mine: Seam, theirs: Seam) -> str:
    """Say which side holds NaN or infinity, where it begins and how many there are; nothing where neither does."""
    own, others = _spoilt(mine), _spoilt(theirs)
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


def _signs(mine: Seam, theirs: Seam, error: float) -> Iterator[Sign]:
    if not math.isfinite(mine.norm) and math.isfinite(theirs.norm):
        yield Sign.NOT_FINITE
    moved = [abs(mine.norm - theirs.norm) / (theirs.norm or 1.0), abs(mine.mean - theirs.mean) / (theirs.std or 1.0)]
    if SHUFFLED_ERROR < error < math.inf and max(moved) < SAME_SIZE:
        yield Sign.SHUFFLED
    if first_wrong_sample(mine, theirs) >= RIGHT_SAMPLES:
        yield Sign.LATER_ROWS


def first_wrong_sample(mine: Seam, theirs: Seam) -> int:
    """Give how many of the first sampled values are right: they lie in the order of a tensor's rows."""
    apart = (mine.sample - theirs.sample).abs()
    wrong = (apart > RIGHT * apart.max()).nonzero()
    return int(wrong[0]) if len(wrong) else 0


def anatomy(mine: Seam, theirs: Seam) -> Iterator[str]:
    """Yield the statistics of both sides, and the values that differ most among those sampled."""
    for statistic in ("mean", "std", "norm"):
        yield f"{statistic:<5}{getattr(mine, statistic):>14.6g}{getattr(theirs, statistic):>14.6g} (reference)"
    apart = (mine.sample - theirs.sample).abs()
    if (first := first_wrong_sample(mine, theirs)) >= RIGHT_SAMPLES and len(mine.shape) > 1:
        position = int(sample_positions(math.prod(mine.shape))[first])
        rows = math.prod(mine.shape[:-1])
        yield f"right up to row {position // mine.shape[-1]} of {rows}, as far as it was sampled"
    differing = int((apart != 0).sum())
    yield f"{differing} of {len(apart)} sampled values differ, at most by {float(apart.max()):.3g}"
    positions = sample_positions(math.prod(mine.shape))
    for k in torch.argsort(apart, descending=True)[: min(SHOWN_VALUES, differing)].tolist():
        index = tuple(map(int, np.unravel_index(int(positions[k]), mine.shape)))  # torch's own imports sympy
        yield f"at {list(index)}: {float(mine.sample[k]):.6g}, the reference has {float(theirs.sample[k]):.6g}"
