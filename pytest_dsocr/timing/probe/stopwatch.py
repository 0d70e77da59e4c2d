"""Laps on the host's clock, and the quantities computed from them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean, median

import torch

from pytest_dsocr.models.spec import FUSION, PREFILL, PREPROCESS, TOKENIZER
from pytest_dsocr.timing.probe.machine import MS, Yardstick
from pytest_dsocr.timing.rounds import BEFORE_STEPS, ENCODERS, FEW, QUANTITIES
from pytest_dsocr.timing.traced import DOMAIN

FRESH_NS = 500_000
"""Largest age of a timing of the small work that the next lap may reuse."""
WITHIN = {TOKENIZER: PREPROCESS, PREFILL: FUSION}
"""Stage within a method's lap, by the lap's name, if a subject shows when that stage runs."""


@dataclass(frozen=True)
class Lap:
    """Times of one action, in milliseconds."""

    wall_ms: float
    """On the host's clock; on a GPU with a synchronise on both sides."""
    host_ms: float = 0.0
    """Average time of the host's small work before and after the lap; 0 without a ``Yardstick``."""


def open_range(name: str) -> Callable[[], object]:
    """Open an NVTX range, for Nsight; return the function that closes it. Without the nvtx package, do nothing."""
    try:
        import nvtx
    except ImportError:
        return lambda: None
    nvtx.push_range(name, domain=DOMAIN)
    return lambda: nvtx.pop_range(domain=DOMAIN)


Laps = Mapping[str, Sequence[Lap]]
"""By name, as often as each was done."""


class Stopwatch:
    """Times named laps; a lap may be within another, and a name may have many.

    Args:
        device: the subject's; on a GPU it is waited for at both ends of a lap.
        yardstick: the small work that the host does before and after each lap; of nested laps, around the outer one.
    """

    def __init__(self, device: str, yardstick: Yardstick | None = None) -> None:
        self.gpu = torch.device(device) if device.startswith("cuda") else None
        self.yardstick = yardstick
        self.laps: dict[str, list[Lap]] = {}
        """By name, in the order in which they ended."""
        self._running = 0
        self._ended: list[tuple[str, Lap]] = []
        self._host_ms = 0.0
        self._host_at_ns = -FRESH_NS

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Time what is done within."""
        stop = self.start(name)
        try:
            yield
        finally:
            stop()

    def start(self, name: str) -> Callable[[], None]:
        """Start a lap, in an NVTX range of its name; return what ends it."""
        if not self._running and time.perf_counter_ns() - self._host_at_ns > FRESH_NS:
            self._measure_host()
        self._running += 1
        self._wait()
        close = open_range(name)
        began = time.perf_counter_ns()

        def stop() -> None:
            self._wait()
            wall_ms = (time.perf_counter_ns() - began) * MS
            close()
            self._ended.append((name, Lap(wall_ms)))
            self._running -= 1
            if not self._running:
                self._keep()

        return stop

    def _keep(self) -> None:
        """Keep the laps that ended since the outermost started, with the host's time for its small work around it."""
        before_ms = self._host_ms
        self._measure_host()
        for name, lap in self._ended:
            self.laps.setdefault(name, []).append(replace(lap, host_ms=(before_ms + self._host_ms) / 2))
        self._ended.clear()

    def _measure_host(self) -> None:
        if self.yardstick:
            self._host_ms = self.yardstick.host_ms()
            self._host_at_ns = time.perf_counter_ns()

    def _wait(self) -> None:
        if self.gpu is not None:
            torch.cuda.synchronize(self.gpu)


def shortest(readings: Sequence[Laps]) -> dict[str, list[Lap]]:
    """Return the shortest of each lap over several readings, since a disturbance only makes a lap longer."""
    return {
        name: [min(same, key=lambda lap: lap.wall_ms) for same in zip(*(one[name] for one in readings), strict=False)]
        for name in readings[0]
    }


def apart(laps: Laps) -> Laps:
    """Return laps without those within them, in the order of the stages; ``vision`` without its encoders is fusion."""
    found = dict(laps)
    for whole, part in WITHIN.items():
        if whole in found and part in found:
            found[whole] = [_without(found[whole], found[part])]
    encoders = [lap for name in ENCODERS for lap in laps.get(name, ())]
    if "vision" in found and encoders:
        found[FUSION] = [_without(found.pop("vision"), encoders), *found.get(FUSION, ())]
    return {name: found[name] for name in QUANTITIES if name in found}


def _without(laps: Sequence[Lap], within: Sequence[Lap]) -> Lap:
    whole = total(laps)
    return Lap(whole.wall_ms - total(within).wall_ms, whole.host_ms)


def in_quantities(laps: Laps) -> dict[str, Lap]:
    """Return what is judged of laps: sums of stages, the median decode step, an early and a late one."""
    found: dict[str, Lap] = {}
    for name, of in laps.items():
        if name == "decode":
            found |= _of_steps(of)
            continue
        found[name] = total(of)
        if name == BEFORE_STEPS[-1]:
            found["first_token"] = total([found[stage] for stage in BEFORE_STEPS if stage in found])
    return found


def total(laps: Sequence[Lap]) -> Lap:
    """Put laps together: the host's pace is the mean of theirs, by their length."""
    lengths = [lap.wall_ms for lap in laps]
    return Lap(sum(lengths), fmean([lap.host_ms for lap in laps], lengths if any(lengths) else None))


def _of_steps(laps: Sequence[Lap]) -> dict[str, Lap]:
    found = {"decode": _middle(laps)}
    if len(laps) >= 2 * FEW:
        found["decode.early"], found["decode.late"] = _middle(laps[:FEW]), _middle(laps[-FEW:])
    return found


def _middle(laps: Sequence[Lap]) -> Lap:
    return Lap(median(lap.wall_ms for lap in laps), median(lap.host_ms for lap in laps))


def growth(values: Sequence[int]) -> int:
    """Return the increase from each value to the next, from the medians at both ends, which ignore an outlier.

    A cache that doubles its room, say, makes one step store far more than its neighbours.
    """
    few = min(FEW, len(values) // 2)
    return round((median(values[-few:]) - median(values[:few])) / (len(values) - few))
