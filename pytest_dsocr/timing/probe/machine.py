"""The machine: which it is, what happens on it around a round, and how fast its host is."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.base.process import cores, versions_of

PACKAGES = ("torch", "transformers", "tokenizers", "pillow", "numpy", "flash-attn", "triton", "pytest-dsocr")
THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}
"""Bits of NVML's reasons for lower clocks that spoil a round."""
WAITED_SHARE = 0.2
"""Share of a round that its thread may wait for a core."""
CALLS = 150
"""Calls of one operator on one number that make the host's small work; they take 0.5 to 1.5 ms."""
MS = 1e-6
"""Milliseconds in a nanosecond."""


def machine(device: str) -> dict[str, Any]:
    """Return the CPU and the cores that this process may use; on a GPU, its model, count, driver and power cap too."""
    found: dict[str, Any] = {"cpu": _cpu(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}
    if device.startswith("cuda"):
        found |= {"gpu": torch.cuda.get_device_name(device), "gpus": torch.cuda.device_count()}
        found |= known.identity if (known := Gpu.of(device)) else {}
    return found


def versions() -> dict[str, str]:
    """Return the versions that times depend on."""
    return versions_of(PACKAGES)


class Surveyor:
    """Surveys the machine before and after each round.

    Args:
        device: the subject's.
        friends: processes that may have memory on the GPU without disturbing: the other side, which waits.
    """

    def __init__(self, device: str, friends: Collection[int] = ()) -> None:
        self.friends = {os.getpid(), *friends}
        self._gpu = Gpu.of(device)
        self._waited_ns = 0

    def begin(self) -> None:
        """Note the state of the machine before a round."""
        self._waited_ns = _waited_ns()

    def end(self, round_ms: float) -> tuple[dict[str, Any], list[str]]:
        """Return what is found as a round of ``round_ms`` milliseconds ends, and what of it spoils the round."""
        waited_ms = (_waited_ns() - self._waited_ns) / 1e6
        values: dict[str, Any] = {"load": round(os.getloadavg()[0], 2), "waited_ms": round(waited_ms, 3)}
        if mhz := cpu_mhz():
            values["cpu_mhz"] = mhz
        spoilt = []
        if waited_ms > WAITED_SHARE * round_ms:
            spoilt.append("the process waited for a core")
        if self._gpu is not None:
            found, why = self._gpu.look(self.friends)
            values |= found
            spoilt += why
        return values, spoilt


class Gpu:
    """A GPU, as the driver's management library (NVML) reports it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle

    @classmethod
    def of(cls, device: str) -> Gpu | None:
        """Return the GPU that torch calls ``device``; None on a CPU, or without the package nvidia-ml-py."""
        if not device.startswith("cuda"):
            return None
        try:
            import pynvml
        except ImportError:
            return None
        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        try:
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError:  # some containers hide a GPU's identity
            return None

    def look(self, friends: Collection[int]) -> tuple[dict[str, Any], list[str]]:
        """Return clocks in MHz, degrees, watts; and what spoils a round."""
        nvml = self.nvml
        found = {
            "sm_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": self._ask(lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_MEM)),
            "degrees_c": self._ask(lambda: nvml.nvmlDeviceGetTemperature(self.handle, nvml.NVML_TEMPERATURE_GPU)),
            "watts": self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3),
        }
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)) or 0
        spoilt = [f"the GPU was throttled ({why})" for bit, why in THROTTLED.items() if reasons & bit]
        others = self._others(friends)
        if others:
            spoilt.append(f"other processes were on the GPU ({', '.join(map(str, sorted(others)))})")
        return {name: value for name, value in found.items() if value is not None}, spoilt

    @property
    def identity(self) -> dict[str, Any]:
        """The driver and the power cap in watts."""
        cap = self._ask(lambda: self.nvml.nvmlDeviceGetEnforcedPowerLimit(self.handle) / 1e3)
        return {"driver": str(self._ask(self.nvml.nvmlSystemGetDriverVersion)), "power_cap_w": cap}

    def _others(self, friends: Collection[int]) -> set[int]:
        """Return other processes that compute on this GPU; none in a container with its own process numbers."""
        found = self._ask(lambda: self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)) or []
        running = {process.pid for process in found}
        return {pid for pid in running if not descends(pid, friends)} if os.getpid() in running else set()

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except self.nvml.NVMLError:
            return None


class Yardstick:
    """Calls the smallest operator again and again, as a decode step that waits for its launches does.

    Args:
        device: the subject's; on a GPU what is called is launched there, and waited for at the end.
    """

    def __init__(self, device: str) -> None:
        self._number = torch.zeros(1, device=device)

    def host_ms(self) -> float:
        """Do the work once; return the milliseconds that it took."""
        self._wait()
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            self._number.add_(1)
        self._wait()
        return (time.perf_counter_ns() - began) * MS

    def _wait(self) -> None:
        if self._number.is_cuda:
            torch.cuda.synchronize(self._number.device)


def move_to(turn: int) -> None:
    """Move this thread to the core number ``turn``; it may move on from there, as threads that it starts may.

    Cores of one host differed by up to half, and a process stays on the core that it was woken on. Of two processes
    that ran the same code one was a fifth slower throughout. If all rotate through the cores, none has an advantage.
    """
    if hasattr(os, "sched_setaffinity"):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(allowed)[turn % len(allowed)]})
        os.sched_setaffinity(0, allowed)


def cpu_mhz() -> int | None:
    """Return the mean clock of the cores, if Linux reports it."""
    mhz = [float(line.partition(":")[2]) for line in _lines("/proc/cpuinfo") if line.startswith("cpu MHz")]
    return round(sum(mhz) / len(mhz)) if mhz else None


def descends(pid: int, ancestors: Collection[int]) -> bool:
    """Return whether a process is one of these, or was started by one: a live reference, which waits, or a server."""
    while pid > 1 and pid not in ancestors:
        fields = _lines(f"/proc/{pid}/stat")[0].rpartition(")")[2].split()
        pid = int(fields[1]) if fields else 0
    return pid in ancestors


def _cpu() -> str:
    models = (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _waited_ns() -> int:
    """Return how long this thread was ready to run and had no core, if Linux reports it."""
    fields = _lines(f"/proc/self/task/{threading.get_native_id()}/schedstat")[0].split()
    return int(fields[1]) if fields else 0


def _lines(path: str) -> list[str]:
    """Return the lines of a file of the kernel; a single empty line if there is no such file."""
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8").splitlines()
    return [""]
