"""Correction of times for the speed of the host in each round.

Shared cores or a falling clock make the same cores a tenth slower an hour later, or for some seconds. Whatever waits
for launches slows down too. The host does the same small work (``Yardstick``) around each lap, and times are corrected
by its duration. Work of a GPU alone does not depend on the host, and is not corrected.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median, median_low

from pytest_dsocr.timing.rounds import ON_DEVICE, Measured, Round
from pytest_dsocr.timing.statistics import Samples

MOST = 1.33
"""The greatest ratio of the host's paces at which times are judged; beyond it, it is as good as another machine."""
STEADY = 0.1
"""Largest change of the host's speed between the sides of a pair, as a logarithm, beyond the usual one."""
STEEPEST = 1.5
"""Largest slope of log times over log pace; decode steps had 1.25 while another process kept the same core busy."""


def host_ms(rounds: Sequence[Round], quantity: str) -> float | None:
    """Return the median milliseconds of the host's small work around a quantity; None if a round has none."""
    if not rounds or not all(quantity in one.host_ms for one in rounds):
        return None
    return median(one.host_ms[quantity] for one in rounds)


def host_ratio(before: Measured, after: Measured) -> float:
    """Return how much longer the host took for the same work in the second run, 1.07 for 7 %; 1 if not timed."""
    paces = ((host_ms(before.good, quantity), host_ms(after.good, quantity)) for quantity in before.quantities)
    ratios = [second / first for first, second in paces if first and second]
    return median(ratios) if ratios else 1.0


def is_another(ratio: float) -> bool:
    """Return whether the host changed by more than can be corrected."""
    return not 1 / MOST <= ratio <= MOST


def of_runs(before: Measured, after: Measured, quantity: str) -> Samples:
    """Return a quantity's milliseconds in two runs, corrected to the median pace of the first run's host."""
    pace = host_ms(before.good, quantity) if host_ms(after.good, quantity) else None
    return at_pace(before.good, before.exact, quantity, pace), at_pace(after.good, after.exact, quantity, pace)


def steady(pairs: Sequence[tuple[Round, Round]], quantity: str) -> Sequence[tuple[Round, Round]]:
    """Leave out pairs in which the host's speed differed between the sides.

    A constant cause, such as a thread that one side leaves running, does not exclude a pair.
    """
    if not all(quantity in one.host_ms for pair in pairs for one in pair):
        return pairs
    changes = [math.log(after.host_ms[quantity] / before.host_ms[quantity]) for before, after in pairs]
    usual = median_low(changes)  # one of them, so that some pair is always left
    return [pair for pair, change in zip(pairs, changes, strict=True) if abs(change - usual) <= STEADY]


def of_turns(rounds: Sequence[Round], quantity: str) -> list[float]:
    """Return one side's milliseconds of interleaved rounds, corrected to their own median pace.

    A constant cause, such as a thread that one side leaves running, stays in that side's times. The GPU's own work is
    counted after the rounds: until then the rounds alone show how far times follow the host.
    """
    return at_pace(rounds, {}, quantity, host_ms(rounds, quantity))


def speed_apart(pairs: Sequence[tuple[Round, Round]], quantity: str) -> float:
    """Return by how much times of a quantity may differ because the host's speed did between the sides of a pair.

    The result is a logarithm. It covers a disturbance that lasts for the second round of one pair and the first of the
    next, which the same side reads.
    """
    if not all(one.host_ms.get(quantity) for pair in pairs for one in pair):
        return 0.0
    changes = [math.log(after.host_ms[quantity] / before.host_ms[quantity]) for before, after in pairs]
    return STEEPEST * abs(median(changes)) if changes else 0.0


def at_pace(rounds: Sequence[Round], exact: Mapping[str, int], quantity: str, pace: float | None) -> list[float]:
    """Return milliseconds corrected to a host that takes ``pace`` for its small work; unchanged if ``pace`` is None.

    The part of a time in which the GPU is idle is the host's. The rounds show how far it follows the small work. It
    follows less if only the small work was disturbed, and more if the rounds need caches that the small work does not.
    """
    times = [one.wall_ms[quantity] for one in rounds]
    own = host_ms(rounds, quantity)
    if pace is None or own is None:
        return times
    busy = busy_ms(exact, quantity)
    hosts = [max(time - busy, 0) for time in times]
    slower = [one.host_ms[quantity] / own for one in rounds]
    share = follows(hosts, slower)
    of_run = (pace / own) ** max(share, 1)
    return [min(time, busy) + host / by**share * of_run for time, host, by in zip(times, hosts, slower, strict=True)]


def follows(times: Sequence[float], slower: Sequence[float]) -> float:
    """Return the slope of log times over log pace: 1 if times double with the host's, 0 if they do not change.

    It is the estimate of Theil and Sen, which a few disturbed rounds do not change.
    """
    from scipy import stats

    known = [(math.log(time), math.log(by)) for by, time in zip(slower, times, strict=True) if time > 0]
    if len({by for _, by in known}) < 2:
        return 0.0
    return min(max(float(stats.theilslopes(*zip(*known, strict=True)).slope), 0.0), STEEPEST)


def busy_ms(exact: Mapping[str, int], quantity: str) -> float:
    """Return the milliseconds of GPU work for a quantity; 0 without a GPU, or if its work was not counted."""
    once = sum(_busy(exact, stage) for stage in ON_DEVICE)
    step = _busy(exact, "decode")
    if quantity.startswith("decode"):
        return step
    if quantity == "first_token":
        return once
    if quantity == "page":
        return once + step * max(exact.get("tokens.output", 1) - 1, 0)
    return _busy(exact, quantity)


def idle_share(measured: Measured, quantity: str = "decode") -> float | None:
    """Return the share of a quantity's time in which the GPU is idle; None if its work was not counted."""
    busy = busy_ms(measured.exact, quantity)
    if not busy or quantity not in measured.quantities:
        return None
    return max(0.0, 1 - busy / median(measured.wall_ms(quantity)))


def _busy(exact: Mapping[str, int], stage: str) -> float:
    return exact.get(f"{stage}.busy_us", 0) / 1e3
