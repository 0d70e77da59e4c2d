"""How fast the host was in each round, and what of a time is due to that alone.

The same cores are a tenth slower an hour later, or for some seconds, where others share them or their clock falls; what
waits for launches follows. Around each reading the host does the same small work (see
:mod:`pytest_dsocr.perf.probe.yardstick`), and times are judged as if it had always taken as long. What a GPU does by
itself does not depend on the host, and is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median

from pytest_dsocr.perf.rounds import Measured, Round
from pytest_dsocr.perf.statistics import Sides

HOST_MS = "host_ms"
"""The condition of a round that tells it."""
MOST = 1.33
"""A host that is faster or slower by more is as good as another machine, and times are not judged."""
DEVICE = ("sam", "clip", "projector", "vision_fusion", "vision", "prefill")
"""Stages that a GPU works for, of which a page has one each."""


def host_ms(rounds: Sequence[Round]) -> float | None:
    """Give the milliseconds of the same small work, at the median; None where a round has none."""
    if not rounds or not all(HOST_MS in one.conditions for one in rounds):
        return None
    return float(median(one.conditions[HOST_MS] for one in rounds))


def host_ratio(before: Measured, after: Measured) -> float:
    """Give how much longer the host took for the same work in the second run: 1.07 is 7 %; 1 where it was not timed."""
    first, second = host_ms(before.good), host_ms(after.good)
    return second / first if first and second else 1.0


def is_another(ratio: float) -> bool:
    """Say whether the host changed by more than times can be corrected for."""
    return not 1 / MOST <= ratio <= MOST


def of_runs(before: Measured, after: Measured, quantity: str) -> Sides:
    """Give a quantity's milliseconds in two runs, as if the host had always been as fast as at the first's median."""
    pace = host_ms(before.good) if host_ms(after.good) else None
    return at_pace(before.good, before.exact, quantity, pace), at_pace(after.good, after.exact, quantity, pace)


def of_turns(rounds: Sequence[Round], exact: Mapping[str, int], quantity: str) -> list[float]:
    """Give one side's milliseconds of rounds taken in turn, as if the host had been as fast as at their own median.

    What makes one side slower throughout, such as a thread that it leaves running, stays in its times.
    """
    return at_pace(rounds, exact, quantity, host_ms(rounds))


def at_pace(rounds: Sequence[Round], exact: Mapping[str, int], quantity: str, pace: float | None) -> list[float]:
    """Give milliseconds as they were had the host taken ``pace`` for its small work; as they are where that is None.

    What the GPU was not working of a time is the host's. How far single rounds follow the small work is read off them,
    as that is short, and may be disturbed where the round is not; what it takes at the median tells the run's own pace.
    """
    times = [one.wall_ms[quantity] for one in rounds]
    own = host_ms(rounds)
    if pace is None or own is None:
        return times
    busy = busy_ms(exact, quantity)
    hosts = [max(time - busy, 0) for time in times]
    slower = [one.conditions[HOST_MS] / own for one in rounds]
    share = follows(hosts, slower)
    return [
        min(time, busy) + host / by**share * pace / own for time, host, by in zip(times, hosts, slower, strict=True)
    ]


def follows(times: Sequence[float], slower: Sequence[float]) -> float:
    """Give how far times follow the host: 1 where they take twice as long when it does, 0 where they do not at all.

    It is the median slope between any two rounds, of the logarithms (Theil and Sen), which a few disturbed ones do not
    change.
    """
    logs = [(math.log(by), math.log(time)) for by, time in zip(slower, times, strict=True) if time > 0]
    slopes = [(t - time) / (b - by) for (by, time), (b, t) in combinations(logs, 2) if b != by]
    return min(max(median(slopes), 0.0), 1.0) if slopes else 0.0


def busy_ms(exact: Mapping[str, int], quantity: str) -> float:
    """Give the milliseconds that the GPU works for a quantity; 0 where there is none, or its work was not counted."""
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
    busy = busy_ms(measured.exact, quantity)
    if not busy or quantity not in measured.quantities:
        return None
    return max(0.0, 1 - busy / median(measured.wall_ms(quantity)))


def _busy(exact: Mapping[str, int], stage: str) -> float:
    return exact.get(f"{stage}.busy_us", 0) / 1e3
