"""What a GPU does for a page: kernels, the time that it works, allocations, the peak of memory; by torch's profiler.

The time that it works hardly differs between runs, where the host's launches differ by a tenth; so it is counted.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pytest_dsocr.perf.probe.stopwatch import Stopwatch
from pytest_dsocr.perf.rounds import ENCODERS

if TYPE_CHECKING:
    from pytest_dsocr.perf.probe.page import PageProbe

TIMES = 2
"""How often a page is profiled; the mean counts."""
FEW_STEPS = 4
"""Decode steps that are profiled; the last one counts."""
BEFORE = "dsocr "
"""What a range's name begins with, so that no range of the subject's is taken for it."""

TRANSFERS = ("Memcpy HtoD", "Memcpy DtoH")
"""Copies between host and GPU, which take as long as the host does."""


def of_gpu(probe: PageProbe) -> dict[str, int]:
    """Return ``STAGE.kernels`` and ``STAGE.busy_us`` of what works on the GPU, and the page's memory."""
    gpu = torch.device(probe.device)
    torch.cuda.reset_peak_memory_stats(gpu)
    probe.read()
    found = {"page.peak_bytes": torch.cuda.max_memory_allocated(gpu)}
    profiles = [_profiled(probe) for _ in range(TIMES)]
    for stage in profiles[-1]:
        found[f"{stage}.kernels"] = len(profiles[-1][stage])
        found[f"{stage}.busy_us"] = round(statistics.mean(sum(one.get(stage, ())) for one in profiles))
    return found | {"decode.allocations": _allocations_of_step(probe, gpu)}


class Ranges(Stopwatch):
    """Names laps for the profiler, in place of timing them; the GPU is waited for at both ends."""

    def start(self, name: str) -> Callable[[], None]:
        """Open a range; return what ends it."""
        self._wait()
        opened = record_function(BEFORE + name)
        opened.__enter__()

        def stop() -> None:
            self._wait()
            opened.__exit__(None, None, None)

        return stop


def _profiled(probe: PageProbe) -> dict[str, list[float]]:
    with (
        warnings.catch_warnings(action="ignore"),  # of the profiler's own: of what it would do in another cycle
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled,
    ):
        walk = probe.walk(Ranges(probe.device))
        walk.max_new_tokens = min(walk.max_new_tokens, FEW_STEPS + 1)
        _, state = walk.begin()
        walk.decode(state)
    return kernels_by_stage(profiled.events())


def kernels_by_stage(events: Iterable[Any]) -> dict[str, list[float]]:
    """Return the microseconds of each kernel that ran while a stage was open; of decode the last step's."""
    laps: dict[str, list[Any]] = {}
    kernels = []
    for event in events:
        if event.device_type.name == "CUDA" and not event.name.startswith((BEFORE, *TRANSFERS)):
            kernels.append(event)
        elif event.device_type.name == "CPU" and event.name.startswith(BEFORE):
            laps.setdefault(event.name.removeprefix(BEFORE), []).append(event.time_range)
    laps["decode"] = laps.get("decode", [])[-1:]
    found = {name: [one for one in kernels if _is_in(one.time_range.start, laps[name])] for name in laps}
    if any(found.get(name) for name in ENCODERS):
        encoding = {id(one) for name in ENCODERS for one in found.get(name, ())}
        found["vision_fusion"] = [one for one in found.pop("vision") if id(one) not in encoding]
    return {name: [one.device_time for one in of_stage] for name, of_stage in found.items() if of_stage}


def _is_in(start: float, laps: Sequence[Any]) -> bool:
    return any(lap.start <= start <= lap.end for lap in laps)


def _allocations_of_step(probe: PageProbe, gpu: torch.device) -> int:
    walk = probe.walk(Stopwatch("cpu"))
    _, state = walk.begin()
    walk.decode(state)
    before = _allocations(gpu)
    probe.subject.step(state, walk.tokens[-1])
    torch.cuda.synchronize(gpu)
    return _allocations(gpu) - before


def _allocations(gpu: torch.device) -> int:
    found: Mapping[str, Any] = torch.cuda.memory_stats(gpu)
    return int(found["allocation.all.allocated"])
