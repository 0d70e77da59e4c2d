"""How far apart two sides may be, by the coarser of the two dtypes they compute in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_dsocr.errors import DsocrError


@dataclass(frozen=True)
class Tolerances:
    """Limits, each relative."""

    dtype: str
    """The coarser of the two sides'."""
    seam: float
    """Norm of a seam's difference over its norm."""
    logits: float
    """Largest difference of logits that tokens were chosen from, over the largest logit."""
    tie_ulps: int
    """How many units in the last place of the best logit the reference's best two may be apart to be a tie."""
    mantissa_bits: int
    """Bits of the dtype's significand that are stored."""

    def ulp(self, logit: float) -> float:
        """Give the distance from ``logit`` to the next number of this dtype."""
        return 2.0 ** (math.frexp(logit or 1.0)[1] - 1 - self.mantissa_bits)


# float32: another processor sums in another order. bfloat16 and float16: half a unit in the last place is 0.4 % and
# 0.05 %, and some fifty layers add up to a few times that, the logits last.
BY_DTYPE = {
    "float32": Tolerances("float32", seam=1e-4, logits=1e-4, tie_ulps=64, mantissa_bits=23),
    "float16": Tolerances("float16", seam=5e-3, logits=1e-2, tie_ulps=4, mantissa_bits=10),
    "bfloat16": Tolerances("bfloat16", seam=3e-2, logits=6e-2, tie_ulps=4, mantissa_bits=7),
}


def tolerances(*dtypes: str) -> Tolerances:
    """Give the limits for sides that compute in ``dtypes``.

    Raises:
        DsocrError: for a dtype that has none.
    """
    unknown = [dtype for dtype in dtypes if dtype not in BY_DTYPE]
    if unknown:
        raise DsocrError(f"there are no tolerances for {unknown[0]}; there are for {', '.join(BY_DTYPE)}")
    return max((BY_DTYPE[dtype] for dtype in dtypes), key=lambda found: found.seam)
