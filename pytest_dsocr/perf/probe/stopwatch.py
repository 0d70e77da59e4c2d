"""Laps on the host's clock and, on a GPU, between events on the stream; and how fast the host was meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from pytest_dsocr.perf.probe.laps import Lap
from pytest_dsocr.perf.probe.yardstick import Yardstick

MS = 1e-6
"""Milliseconds of a nanosecond."""
FRESH_NS = 500_000
"""How long ago the small work may have been done that the next lap begins with."""


class Stopwatch:
    """Times named laps; a lap may be within another, and a name may have many.

    Args:
        device: the subject's; on a GPU it is waited for at both ends of a lap.
        planted: share by which laps of a name are really made longer, to prove that this is found.
        yardstick: the small work that the host does before and after each lap; where one is within another, around
            the outer one.
    """

    def __init__(self, device: str, planted: Mapping[str, float] = {}, yardstick: Yardstick | None = None) -> None:
        self.gpu = torch.device(device) if device.startswith("cuda") else None
        self.planted, self.yardstick = planted, yardstick
        self.laps: dict[str, list[Lap]] = {}
        """By name, in the order in which they ended."""
        self._running = 0
        self._ended: list[tuple[str, Lap]] = []
        self._host_ms: float | None = None
        self._host_at_ns = -FRESH_NS

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Time what is done within."""
        stop = self.start(name)
        yield
        stop()

    def start(self, name: str) -> Callable[[], None]:
        """Start a lap; what is given ends it."""
        if not self._running and time.perf_counter_ns() - self._host_at_ns > FRESH_NS:
            self._measure_host()
        self._running += 1
        self._wait()
        opened, began = self._event(), time.perf_counter_ns()

        def stop() -> None:
            closed = self._event()
            self._wait()
            if share := self.planted.get(name):
                _spin(began, share)
            wall_ms = (time.perf_counter_ns() - began) * MS
            self._ended.append((name, Lap(wall_ms, opened.elapsed_time(closed) if opened else None)))
            self._running -= 1
            if not self._running:
                self._keep()

        return stop

    def _keep(self) -> None:
        """Keep the laps that ended since the outermost began, with what the host took for its small work around it."""
        before_ms = self._host_ms
        self._measure_host()
        for name, lap in self._ended:
            host_ms = None if before_ms is None or self._host_ms is None else (before_ms + self._host_ms) / 2
            self.laps.setdefault(name, []).append(replace(lap, host_ms=host_ms))
        self._ended.clear()

    def _measure_host(self) -> None:
        if self.yardstick:
            self._host_ms = self.yardstick.host_ms()
            self._host_at_ns = time.perf_counter_ns()

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
