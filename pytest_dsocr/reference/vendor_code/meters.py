"""What is read when a stage of the vendor's run begins and ends: a clock, CUDA events, or a count of operations."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Protocol

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count


class Meter(Protocol):
    """Something that grows while the vendor's code runs."""

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which it can be read."""

    def read(self) -> Any:
        """Note where it stands."""

    def difference(self, start: Any, end: Any) -> float:
        """Return how far it went between two notes, once the run is over."""


class Clock:
    """Milliseconds of the host."""

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Need nothing."""
        return contextlib.nullcontext()

    def read(self) -> int:
        """Note the time."""
        return time.perf_counter_ns()

    def difference(self, start: int, end: int) -> float:
        """Return milliseconds."""
        return (end - start) / 1e6


class CudaEvents:
    """Milliseconds of the GPU's current stream, between events on it."""

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Need nothing."""
        return contextlib.nullcontext()

    def read(self) -> torch.cuda.Event:
        """Put an event on the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def difference(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return milliseconds; waits for ``end``."""
        end.synchronize()
        return float(start.elapsed_time(end))


class Flops:
    """Floating-point operations, as torch's counter sees them.

    It leaves out the attention that SAM and CLIP run on the CPU, which is counted here as the GPU's is.
    """

    def __init__(self) -> None:
        on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        self._counter = FlopCounterMode(display=False, custom_mapping={on_cpu: _attention_flops})

    def running(self) -> contextlib.AbstractContextManager[Any]:
        """Count."""
        return self._counter

    def read(self) -> int:
        """Note the count so far."""
        return self._counter.get_total_flops()

    def difference(self, start: int, end: int) -> float:
        """Return operations."""
        return end - start


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count for the shapes ``[B, heads, tokens, channels]``."""
    return int(sdpa_flop_count(query, key, value))


def clock_of(device: torch.device) -> Meter:
    """Return what times ``device``."""
    return CudaEvents() if device.type == "cuda" else Clock()
