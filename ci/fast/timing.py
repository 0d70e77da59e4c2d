"""Both sessions with the same weights, and times of work that is done in turn."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from pytest_dsocr.engine.session import Session

WARM_UP_RUNS = 3
"""The first computes as it comes, the second captures."""


class Sessions(NamedTuple):
    """The readable session and the fast one, of one checkpoint."""

    readable: Session[Any]
    fast: Session[Any]


def load(checkpoint: str, device: str, dtype: str, attention: str) -> Sessions:
    """Load both; raise ``DsocrError`` where any of these is not available."""
    how: dict[str, Any] = {"device": device, "dtype": dtype, "attention": attention, "instrument": "off"}
    readable = Session.from_checkpoint(checkpoint, **how)
    return Sessions(readable, Session.from_checkpoint(checkpoint, **how, engine="fast"))


def device_name(device: str) -> str:
    """Give the device's name, with torch's version."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"{name}, torch {torch.__version__}"


def in_turn(ways: Mapping[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Give the median milliseconds of each way, taken in turn, and how often the first takes the last one's time."""
    for work in ways.values():
        for _ in range(WARM_UP_RUNS):
            work()
    taken = defaultdict[str, list[float]](list)
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(once_ms(work, device))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    first, *_, last = medians.values()
    return {**medians, "ratio": first / last}


def once_ms(work: Callable[[], object], device: torch.device) -> float:
    """Give the milliseconds of one call: on a GPU by events around it, its launches included."""
    if device.type != "cuda":
        began_s = time.perf_counter()
        work()
        return (time.perf_counter() - began_s) * 1e3
    torch.cuda.synchronize(device)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    work()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended))
