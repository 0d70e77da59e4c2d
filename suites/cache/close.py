"""Two ways to the same numbers, compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared

if TYPE_CHECKING:
    from torch import Tensor


def compare_ways(what: str, found: Tensor, expected: Tensor, allowed: float) -> Comparison:
    """Compare tensors by the largest difference over the largest value, of finite ones; where all are alike, nothing.

    Args:
        what: what they are of.
        found: by one way.
        expected: by the other, which is taken for right.
        allowed: the relative error that is DRIFT.
    """
    if found.shape != expected.shape:
        measured = f"shape {list(found.shape)}; expected {list(expected.shape)}"
        return Comparison(what, Verdict.WRONG, measured)
    if not expected.numel() or bool((expected == expected.flatten()[0]).all()):
        measured = f"all alike in {list(expected.shape)}, which tells nothing; give what was computed"
        return not_compared(what, Reason.TELLS_NOTHING, measured)
    apart = (found.float() - expected.float()).abs()
    error = float(apart.max() / expected.float().abs().max())
    verdict = Verdict.MATCH if error == 0.0 else Verdict.DRIFT if error <= allowed else Verdict.WRONG
    return Comparison(what, verdict, f"relative error at most {error:.1e} (allowed {allowed:.0e})", error)
