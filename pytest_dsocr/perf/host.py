"""How fast the host was in each of two runs, and what of their times is due to that alone.

The same cores are a tenth slower an hour later, where others share them or their clock falls; what waits for launches
follows. Before each reading the host does the same small work (see :mod:`pytest_dsocr.perf.probe.yardstick`). What a
GPU does itself does not depend on the host, and is left as it is. Runs taken in turn need none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.perf.statistics import Sides

HOST_MS = "host_ms"
"""The condition of a round that tells it."""
MOST = 1.33
"""A host that is faster or slower by more is another machine, and times are not judged."""
DEVICE = ("sam", "clip", "projector", "vision_fusion", "vision", "prefill")
"""Stages that a GPU works for, of which a page has one each."""


def host_ratio(before: Measured, after: Measured) -> float:
    """Give how much longer the host took for the same work in the second run: 1.07 is 7 %; 1 where it was not timed."""
    found = [[one.conditions[HOST_MS] for one in side.good if HOST_MS in one.conditions] for side in (before, after)]
    return median(found[1]) / median(found[0]) if all(found) else 1.0


def is_another(ratio: float) -> bool:
    """Say whether the host changed by more than times can be corrected for."""
    return not 1 / MOST <= ratio <= MOST


def at_one_pace(before: Measured, after: Measured, quantity: str) -> Sides:
    """Give a quantity's milliseconds in both runs, the second's as they were had the host been as fast as in the first.

    What the GPU was not working of a time is the host's.
    """
    slower = host_ratio(before, after)
    busy = busy_ms(after, quantity)
    times = [min(time, busy) + max(time - busy, 0) / slower for time in after.wall_ms(quantity)]
    return before.wall_ms(quantity), times


def busy_ms(measured: Measured, quantity: str) -> float:
    """Give the milliseconds that the GPU works for a quantity; 0 where there is none, or its work was not counted."""
    exact = measured.exact
    once = sum(_busy(exact, stage) for stage in DEVICE)
    step = _busy(exact, "decode")
    if quantity.startswith("decode"):
        return step
    if quantity == "first_token":
        return once
    if quantity == "page":
        return once + step * max(exact.get("tokens.output", 1) - 1, 0)
    return _busy(exact, quantity)


def idle_share(measured: Measured, quantity: str = "decode") -> float | None:
    """Give the share of a quantity's time in which the GPU does nothing; None where its work was not counted."""
    busy = busy_ms(measured, quantity)
    if not busy or quantity not in measured.quantities:
        return None
    return max(0.0, 1 - busy / median(measured.wall_ms(quantity)))


def _busy(exact: Mapping[str, int], stage: str) -> float:
    return exact.get(f"{stage}.busy_us", 0) / 1e3
