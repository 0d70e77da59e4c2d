"""How long a GPU works in each stage of a page, as its profiler sees it; in the rest of a stage's time it idles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pytest_dsocr.perf.probe.stopwatch import Stopwatch

LAP = "dsocr:"


class LabelledLaps(Stopwatch):
    """A stopwatch whose laps a profiler sees; the GPU is waited for at both ends, so that a lap's kernels lie in it."""

    def start(self, name: str) -> Callable[[], None]:
        """Start a lap; what is given ends it."""
        label = record_function(LAP + name)
        self._wait()
        label.__enter__()

        def stop() -> None:
            self._wait()
            label.__exit__(None, None, None)

        return stop


@contextmanager
def profiled(gpu: torch.device, *, laps: bool = False) -> Iterator[profile]:
    """Profile what is done within on the GPU; with ``laps`` those of :class:`LabelledLaps` as well."""
    activities = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if laps else [])]
    with (
        warnings.catch_warnings(action="ignore"),  # of the profiler's own: of what it would do in another cycle
        profile(activities=activities) as found,
    ):
        yield found
        torch.cuda.synchronize(gpu)


def kernels(found: profile) -> list[Any]:
    """Give what ran on the GPU: kernels, copies and fills."""
    return [event for event in found.events() if event.device_type.name == "CUDA" and not event.name.startswith(LAP)]


def busy_us(events: Sequence[Any]) -> int:
    """Give the GPU's time in them."""
    return round(sum(float(event.device_time) for event in events))


def busy_us_of_laps(found: profile) -> dict[str, list[float]]:
    """Give the GPU's time in each lap, by the lap's name."""
    ran = kernels(found)
    laps: dict[str, list[float]] = {}
    for lap in found.events():
        if lap.device_type.name == "CPU" and lap.name.startswith(LAP):
            within = [one for one in ran if lap.time_range.start <= one.time_range.start <= lap.time_range.end]
            laps.setdefault(lap.name.removeprefix(LAP), []).append(busy_us(within))
    return laps
