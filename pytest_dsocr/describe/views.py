"""The levels of views of both sides.

Shapes: N views, 3 colours, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Views:
    """Pixels of views ``[N, 3, H, W]`` of both sides, as levels from 0 to 255; the subject's may be between levels."""

    actual: Tensor
    expected: Tensor

    @property
    def apart(self) -> Tensor:
        """The difference in levels."""
        return self.actual - self.expected

    def only(self, views: list[int]) -> Views:
        """Return some of the views."""
        return Views(self.actual[views], self.expected[views])

    def share(self, predicted: Tensor, lines: slice = slice(None)) -> float:
        """Return the share of the difference that a prediction of the subject's levels explains, on some lines."""
        left, before = ((self.actual - one)[..., lines, :].norm() for one in (predicted, self.expected))
        return max(0.0, 1 - float(left / before)) if before else 0.0
