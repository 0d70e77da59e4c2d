"""The roofline of a device: the time below which nothing can run, and what limits a measured time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from pytest_dsocr.cost.cost import Cost
from pytest_dsocr.cost.model import decode_step, stages_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.models import VISION
from pytest_dsocr.models.architecture import Architecture

DEVICES = Path(__file__).with_name("devices.json")
LAUNCH_BOUND = 0.5
"""Share of a time that the device idles from which on the host's launches are what limits it."""
NEAR = 0.5
"""Share of the roof, in the time that the device works, from which on the roof is what limits it."""
DTYPES = ("bfloat16", "float16", "float32")


class Limit(StrEnum):
    """The resource that limits the speed of a stage."""

    LAUNCHES = "launch-bound"
    """The device waits for the host."""
    KERNELS = "kernel-bound"
    """The device works, and its kernels are far from either peak."""
    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"


@dataclass(frozen=True)
class Device:
    """A GPU's peaks, as its maker states them."""

    name: str
    gpus: tuple[str, ...]
    """Names of the device in the driver."""
    tflops: Mapping[str, float]
    """By dtype: of matrix products without sparsity, accumulated in float32; ``float32`` without TF32."""
    bandwidth_gb_s: float
    source: str
    """Source of the peaks."""


@dataclass(frozen=True)
class Bound:
    """The least time that a cost takes on a device, the roof; bounds of what comes one after the other add up."""

    ms: float = 0.0
    compute_ms: float = 0.0
    """With every matrix product at the device's peak."""
    memory_ms: float = 0.0
    """With every byte at the device's peak."""

    def __add__(self, other: Bound) -> Bound:
        return Bound(self.ms + other.ms, self.compute_ms + other.compute_ms, self.memory_ms + other.memory_ms)

    @property
    def limit(self) -> Limit:
        """The larger of the two limits."""
        return Limit.COMPUTE if self.compute_ms > self.memory_ms else Limit.MEMORY

    def share(self, measured_ms: float) -> Share:
        """Return the shares of the roof that a measured time reaches."""
        return Share(self.ms / measured_ms, self.compute_ms / measured_ms, self.memory_ms / measured_ms)


@dataclass(frozen=True)
class Share:
    """Share of the roof that a measured time reaches; 1 is at it."""

    roof: float
    mfu: float
    """Matrix FLOPs a second, of the device's peak: model FLOPs utilisation."""
    bandwidth: float
    """Bytes a second that have to be moved, of the device's peak."""


def bound(cost: Cost, device: Device, dtype: str) -> Bound:
    """Return the least time of a cost: that of its matrix products or that of its bytes, whichever is longer."""
    compute_ms = cost.matrix_flops / (device.tflops[dtype] * 1e9)
    memory_ms = cost.bytes / (device.bandwidth_gb_s * 1e6)
    return Bound(max(compute_ms, memory_ms), compute_ms, memory_ms)


def limit_of(roof: Bound, measured_ms: float, idle: float | None = None) -> Limit | None:
    """Return the limit of a measured time; None if it is far below the roof and the device's idle share is unknown."""
    share = roof.share(measured_ms).roof
    if idle is None and share < NEAR:  # from there on, it worked for half of the time at least
        return None
    idle = idle or 0.0
    if idle > LAUNCH_BOUND:
        return Limit.LAUNCHES
    return roof.limit if share >= NEAR * (1 - idle) else Limit.KERNELS


@dataclass(frozen=True)
class Roof:
    """The least times of one page on one device."""

    device: Device
    dtype: str
    bounds: Mapping[str, Bound]
    """By the time's name in a measurement: stages, and sums of them. ``decode`` is the step in the middle."""

    @classmethod
    def of(cls, arch: Architecture, work: Workload, device: Device) -> Roof:
        """Return that of ``work``."""
        stages = {name: bound(stage.cost, device, work.dtype) for name, stage in stages_of(arch, work).items()}
        decode = stages.pop("decode")
        vision = sum((stages[name] for name in VISION if name in stages), Bound())
        first_token = vision + stages["prefill"]
        found = {**stages, "vision": vision, "first_token": first_token, "page": first_token + decode}
        if work.decode_steps:
            middle = arch.family.cache.length(work.prompt_tokens, (work.decode_steps + 1) // 2)
            found["decode"] = bound(decode_step(arch, work, middle).cost, device, work.dtype)
        return cls(device, work.dtype, found)

    @property
    def prefill_in_steps(self) -> float | None:
        """Return the number of decode steps that take as long as the prefill; None if nothing is decoded."""
        return self.bounds["prefill"].ms / self.bounds["decode"].ms if "decode" in self.bounds else None

    @property
    def text(self) -> str:
        """The device and the two peaks that make the roof."""
        peak, bandwidth = self.device.tflops[self.dtype], self.device.bandwidth_gb_s
        return f"{self.device.name}, {peak:g} TFLOP/s in {self.dtype}, {bandwidth:g} GB/s"


@cache
def devices() -> Mapping[str, Device]:
    """Return every device that is known, by its short name."""
    found = json.loads(DEVICES.read_text(encoding="utf-8"))
    return {key: Device(**{**values, "gpus": tuple(values["gpus"])}) for key, values in found.items()}


def device_of_gpu(gpu: str) -> Device | None:
    """Return the device whose driver uses this name; None if it is not known."""
    return next((one for one in devices().values() if gpu in one.gpus), None)
