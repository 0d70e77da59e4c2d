"""Laps on the host's clock and, on a GPU, between events on the stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

MS = 1e-6
"""Milliseconds of a nanosecond."""


class Stopwatch:
    """Times named laps; a lap may be within another, and a name may have many.

    Args:
        device: the subject's; on a GPU it is waited for at both ends of a lap.
        planted: share by which laps of a name are really made longer, to prove that this is found.
    """

    def __init__(self, device: str, planted: Mapping[str, float] = {}) -> None:
        self.gpu = torch.device(device) if device.startswith("cuda") else None
        self.planted = planted
        self.wall_ms: dict[str, list[float]] = {}
        self._events: dict[str, list[tuple[Any, Any]]] = {}

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Time what is done within."""
        stop = self.start(name)
        yield
        stop()

    def start(self, name: str) -> Callable[[], None]:
        """Start a lap; what is given ends it."""
        self._wait()
        opened, began = self._event(), time.perf_counter_ns()

        def stop() -> None:
            closed = self._event()
            self._wait()
            if share := self.planted.get(name):
                _spin(began, share)
            self.wall_ms.setdefault(name, []).append((time.perf_counter_ns() - began) * MS)
            if opened is not None:
                self._events.setdefault(name, []).append((opened, closed))

        return stop

    @property
    def stream_ms(self) -> dict[str, list[float]]:
        """Milliseconds between the events of each lap; nothing on a CPU."""
        return {name: [opened.elapsed_time(closed) for opened, closed in laps] for name, laps in self._events.items()}

    def _wait(self) -> None:
        if self.gpu is not None:
            torch.cuda.synchronize(self.gpu)

    def _event(self) -> Any:
        if self.gpu is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.gpu))  # the subject's device may not be the current one
        return event


def _spin(began_ns: int, share: float) -> None:
    """Keep the host busy until a lap has become longer by ``share``."""
    end = time.perf_counter_ns()
    until = end + (end - began_ns) * share
    while time.perf_counter_ns() < until:
        pass
