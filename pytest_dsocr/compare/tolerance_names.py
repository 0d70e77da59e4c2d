"""Table of the tolerances that a run or a test may set; imports little, as each run of pytest registers the marker."""

from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """Values that a run or a test may set for one tolerance, and those that a failure suggests."""

    number: type
    suggested: tuple[float, ...] = ()
    """Values in rising order; empty if no failure suggests another."""
    multiples: bool = False
    """Whether ``suggested`` are multiples of the limit that applies."""


NAMES: Mapping[str, Kind] = {
    "boxes": Kind(int, (1, 2, 3)),
    "coords": Kind(float, (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)),
    "text": Kind(float, (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)),
    "seam": Kind(float, (1.5, 2, 5, 10), multiples=True),
    "logits": Kind(float, (1.5, 2, 5, 10), multiples=True),
    "ties": Kind(int, (2, 4), multiples=True),
    "rounding": Kind(float),
}
"""Tolerances that a run or a test may set; options, markers and failures take them from here."""
