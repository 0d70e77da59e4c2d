"""Results of comparisons, and their limits, in the form of ``dsocr.json``.

JSON has no word for an infinity or a NaN, so a :data:`Number` is a word where it is neither.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict

Number = int | float | Literal["nan", "infinite", "-infinite"] | None
"""A number, the word for one that JSON lacks, or None where there is none."""


class ComparisonResult(Struct, frozen=True):
    """A :class:`~pytest_dsocr.compare.verdict.Comparison` without its error, and whether it passes."""

    what: str
    verdict: Verdict
    passes: bool
    measured: str
    error: Number
    details: list[str]
    reason: Reason | None
    signs: list[Symptom]
    """In the order of the alphabet."""
    diff: list[list[tuple[str, str]]]
    """Lines of a diff of texts. A piece is its side and its text; see :mod:`pytest_dsocr.compare.diff`."""
    allowed: Number = None
    """Largest error that passes."""
    along: str = ""
    """A digit for the error of each decoding step; see :mod:`pytest_dsocr.describe.error_digits`."""
    share: Number = None
    """Edit distance of a text over the reference's length."""

    @classmethod
    def of(cls, one: Comparison) -> ComparisonResult:
        """Return the result of a comparison."""
        diff = [[(str(piece.side), piece.text) for piece in line] for line in one.diff]
        error, details, signs = of_number(one.error), [*one.details], sorted(one.signs)
        judged = one.what, one.verdict, one.passes, one.measured, error, details
        return cls(*judged, one.reason, signs, diff, of_number(one.allowed), one.along, of_number(one.share))


class OutsideLimits(Struct, frozen=True):
    """A comparison beyond the run's own limits in a case whose tests passed."""

    what: str
    verdict: Verdict
    measured: str
    allowed_by: list[str]
    """Tests with limits that allow it; empty if no test of the run checks it."""


class LimitsUsed(Struct, frozen=True):
    """Limits that a case was judged by."""

    dtype: str
    """The coarser one of the two sides'."""
    same_key: bool
    """Whether checkpoint, device, dtype and attention of both sides are equal."""
    on_cpu: bool
    """Whether the reference was computed on a CPU."""
    allowed: dict[str, float]
    """By the names of the tolerances, and ``vision``."""


def of_number(value: float | None) -> Number:
    """Return a number as JSON can hold it."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def number(value: Number) -> float:
    """Return what :func:`of_number` was given; 0 of None, and infinity of a NaN, which no limit allows."""
    words = {None: 0.0, "infinite": math.inf, "-infinite": -math.inf, "nan": math.inf}
    return words[value] if value is None or isinstance(value, str) else value
