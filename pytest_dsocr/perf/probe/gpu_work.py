"""What a GPU does for a page: kernels, the time that it works, allocations, the peak of memory; by torch's profiler.

The time that it works hardly differs between runs, where the host's launches differ by a tenth; so it is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch

from pytest_dsocr.perf.probe.lines import Lines, Marks, Own, stage_of
from pytest_dsocr.perf.probe.stopwatch import WITHIN, Stopwatch
from pytest_dsocr.perf.probe.tracing import Reading, profiled
from pytest_dsocr.perf.rounds import ENCODERS

if TYPE_CHECKING:
    from pytest_dsocr.perf.probe.page import PageProbe

TIMES = 2
"""How often a page is profiled; the mean counts."""
FEW_STEPS = 4
"""Decode steps that are profiled; the last one counts."""
TRANSFERS = ("Memcpy HtoD", "Memcpy DtoH")
"""Copies between host and GPU, which take as long as the host does."""


def of_gpu(probe: PageProbe) -> dict[str, int]:
    """Return ``STAGE.kernels`` and ``STAGE.busy_us`` of what works on the GPU, and the page's memory."""
    gpu = torch.device(probe.device)
    torch.cuda.reset_peak_memory_stats(gpu)
    probe.read()
    found = {"page.peak_bytes": torch.cuda.max_memory_allocated(gpu)}
    profiles = [kernels_by_stage(_reading(probe)) for _ in range(TIMES)]
    for stage in profiles[-1]:
        found[f"{stage}.kernels"] = len(profiles[-1][stage])
        found[f"{stage}.busy_us"] = round(mean(sum(one.get(stage, ())) for one in profiles))
    return found | {"decode.allocations": _allocations_of_step(probe, gpu)}


def _reading(probe: PageProbe) -> Reading:
    lines = Lines(Marks(Own([], ())))

    def read() -> None:
        walk = probe.walk(lines.marks)
        walk.max_new_tokens = min(walk.max_new_tokens, FEW_STEPS + 1)
        _, state = walk.begin()
        walk.decode(state)

    return Reading(profiled(read, probe.device), lines)


def kernels_by_stage(reading: Reading) -> dict[str, list[float]]:
    """Return the microseconds of each kernel that a stage launched; of decode the last step's."""
    found: dict[str, list[float]] = defaultdict(list)
    for run, name, us in reading.kernels:
        is_counted = stage_of(run) != "decode" or run == f"decode {reading.runs['decode'] - 1}"
        found[stage_of(run)] += us if is_counted and not name.startswith(TRANSFERS) else []
    for whole, part in WITHIN.items():
        found[whole] += found[part]
    if any(found[name] for name in ENCODERS):
        found["vision_fusion"] = found.pop("vision", [])
    return {name: of_stage for name, of_stage in found.items() if of_stage}


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
