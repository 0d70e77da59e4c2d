"""Names of the stages, and their measurement: NVTX ranges, and times.

On a GPU a stage is timed by CUDA events on the stream that does its work, so timing adds no wait. The elapsed times
are read once, when they are requested.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import StageWatch
from pytest_dsocr.models import STAGE_NAMES, STAGES

Instrument = Literal["off", "nvtx", "timed"]
INSTRUMENTS: tuple[Instrument, ...] = get_args(Instrument)

ON_HOST = frozenset(stage.name for stage in STAGES if stage.kind == "host")
_NOTHING = nullcontext()


@dataclass(frozen=True)
class StageTime:
    """Times of a stage: the milliseconds of each run."""

    stage: str
    runs_ms: tuple[float, ...]

    @property
    def total_ms(self) -> float:
        """Milliseconds of all runs together."""
        return sum(self.runs_ms)


class Stages:
    """Context of a stage, as in ``with stages("projector"):``; its effect depends on the instrument.

    ``off`` does nothing, ``nvtx`` opens an NVTX range (or does nothing without the nvtx package), ``timed`` opens the
    range and times it too.
    """

    def __init__(self, device: torch.device, instrument: Instrument = "off") -> None:
        if instrument not in INSTRUMENTS:
            raise DsocrError(f"instrument {instrument!r} is unknown; choose one of {', '.join(INSTRUMENTS)}")
        self.instrument = instrument
        self._gpu = device if device.type == "cuda" else None
        self.also: StageWatch | None = None
        """Additional context in which each stage runs, if there is one."""
        self._marks: list[tuple[str, Any, Any]] = []
        self._nvtx = None if instrument == "off" else _nvtx_package()

    def __call__(self, stage: str) -> AbstractContextManager[None]:
        """Return the context of one run of ``stage``."""
        return _NOTHING if self.instrument == "off" and self.also is None else self._watch(stage)

    def clear(self) -> None:
        """Delete the times taken so far."""
        self._marks.clear()

    def times(self) -> dict[str, StageTime]:
        """Return the times taken since :meth:`clear`, by stage; waits for the device once."""
        if self._gpu and self._marks:
            torch.cuda.synchronize(self._gpu)
        runs: dict[str, list[float]] = {}
        for stage, start, end in self._marks:
            elapsed_ms = (end - start) / 1e6 if isinstance(start, int) else start.elapsed_time(end)
            runs.setdefault(stage, []).append(elapsed_ms)
        return {stage: StageTime(stage, tuple(runs[stage])) for stage in STAGE_NAMES if stage in runs}

    @contextmanager
    def _watch(self, stage: str) -> Iterator[None]:
        if self._nvtx is not None:
            self._nvtx.push_range(stage, domain="dsocr")
        start = self._now(stage)
        try:
            with self.also(stage) if self.also else _NOTHING:
                yield
        finally:
            if self.instrument == "timed":
                self._marks.append((stage, start, self._now(stage)))
            if self._nvtx is not None:
                self._nvtx.pop_range(domain="dsocr")

    def _now(self, stage: str) -> Any:
        if self.instrument != "timed":
            return None
        if self._gpu is None or stage in ON_HOST:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._gpu))  # the caller's current device may be another
        return event


def _nvtx_package() -> Any:
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx
