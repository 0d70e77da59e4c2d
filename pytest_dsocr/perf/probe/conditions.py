"""The machine around a round: clocks, heat, throttling, other processes, and how long this one waited for a core."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THROTTLED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, by the hardware",
    0x80: "power brake",
}
"""Bits of NVML's reasons for lower clocks that spoil a round."""
STEAL = 8
"""Its place in the first line of ``/proc/stat``."""
WAITED_SHARE = 0.2
"""Share of a round that its thread may wait for a core."""


@dataclass(frozen=True)
class Conditions:
    """What was found around one round."""

    values: Mapping[str, Any]
    spoilt: tuple[str, ...]


class Surveyor:
    """Looks at the machine before and after each round.

    Args:
        device: the subject's.
        friends: processes that may hold memory on the GPU without being in the way: the other side, which waits.
    """

    def __init__(self, device: str, friends: Collection[int] = ()) -> None:
        self.friends = {os.getpid(), *friends}
        self._gpu = Gpu.of(device)
        self._waited_ns, self._stolen = 0, 0

    def begin(self) -> None:
        """Note where things stand as a round begins."""
        self._waited_ns, self._stolen = _waited_ns(), stolen_ticks() or 0

    def end(self, round_ms: float) -> Conditions:
        """Give what is found as a round of ``round_ms`` milliseconds ends."""
        waited_ms = (_waited_ns() - self._waited_ns) / 1e6
        values: dict[str, Any] = {"load": round(os.getloadavg()[0], 2), "waited_ms": round(waited_ms, 3)}
        if (stolen := stolen_ticks()) is not None:
            values["stolen_s"] = (stolen - self._stolen) / os.sysconf("SC_CLK_TCK")
        if mhz := cpu_mhz():
            values["cpu_mhz"] = mhz
        spoilt = []
        if waited_ms > WAITED_SHARE * round_ms:
            spoilt.append(f"the process waited {waited_ms:.0f} of {round_ms:.0f} ms for a core")
        if self._gpu is not None:
            found, why = self._gpu.look(self.friends)
            values |= found
            spoilt += why
        return Conditions(values, tuple(spoilt))


class Gpu:
    """One GPU, as the driver's management library (NVML) knows it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle

    @classmethod
    def of(cls, device: str) -> Gpu | None:
        """Give the GPU that torch calls ``device``; None on a CPU, or without the package nvidia-ml-py."""
        if not device.startswith("cuda"):
            return None
        try:
            import pynvml
        except ImportError:
            return None
        import torch

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        try:
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError:  # some containers hide a GPU's identity
            return None

    def look(self, friends: Collection[int]) -> tuple[dict[str, Any], list[str]]:
        """Give clocks in MHz, degrees, watts; and what spoils a round."""
        nvml = self.nvml
        found = {
            "sm_mhz": self._asked(lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": self._asked(lambda: nvml.nvmlDeviceGetClockInfo(self.handle, nvml.NVML_CLOCK_MEM)),
            "degrees_c": self._asked(lambda: nvml.nvmlDeviceGetTemperature(self.handle, nvml.NVML_TEMPERATURE_GPU)),
            "watts": self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3),
        }
        reasons = self._asked(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)) or 0
        spoilt = [f"the GPU was throttled ({why})" for bit, why in THROTTLED.items() if reasons & bit]
        others = self._others(friends)
        if others:
            spoilt.append(f"other processes were on the GPU ({', '.join(map(str, sorted(others)))})")
        return {name: value for name, value in found.items() if value is not None}, spoilt

    @property
    def identity(self) -> dict[str, Any]:
        """The driver and the power cap in watts."""
        cap = self._asked(lambda: self.nvml.nvmlDeviceGetEnforcedPowerLimit(self.handle) / 1e3)
        return {"driver": str(self._asked(self.nvml.nvmlSystemGetDriverVersion)), "power_cap_w": cap}

    def _others(self, friends: Collection[int]) -> set[int]:
        """Give the other processes that compute there. In a container that counts processes anew nobody can tell."""
        found = self._asked(lambda: self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)) or []
        running = {process.pid for process in found}
        return running - set(friends) if os.getpid() in running else set()

    def _asked(self, question: Any) -> Any:
        try:
            return question()
        except self.nvml.NVMLError:
            return None


def stolen_ticks() -> int | None:
    """Give the ticks that a hypervisor kept this machine's cores from it, where Linux tells it; of all cores."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
    except OSError:
        return None
    return int(fields[STEAL]) if len(fields) > STEAL else None


def cpu_mhz() -> int | None:
    """Give the mean clock of the cores, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    mhz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(sum(mhz) / len(mhz)) if mhz else None


def _waited_ns() -> int:
    """Give how long this thread was ready to run and had no core, where Linux tells it."""
    try:
        said = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(said.split()[1])
