"""The roof over a page's times: for each time that is taken of it, the least that it can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_dsocr.cost.model import decode_step, stages_of
from pytest_dsocr.cost.roofline import Bound, Device, bound
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture

VISION = ("sam", "clip", "projector", "vision_fusion")


@dataclass(frozen=True)
class Roof:
    """The least times of one page on one device."""

    device: Device
    dtype: str
    bounds: Mapping[str, Bound]
    """By the time's name in a measurement: stages, and sums of them. ``decode`` is the step in the middle."""

    @classmethod
    def of(cls, arch: Architecture, work: Workload, device: Device) -> Roof:
        """Give that of ``work``."""
        stages = {name: bound(stage.cost, device, work.dtype) for name, stage in stages_of(arch, work).items()}
        decode = stages.pop("decode")
        vision = sum((stages[name] for name in VISION), Bound())
        first_token = vision + stages["prefill"]
        found = {**stages, "vision": vision, "first_token": first_token, "page": first_token + decode}
        if work.decode_steps:
            middle = work.prompt_tokens + (work.decode_steps + 1) // 2
            found["decode"] = bound(decode_step(arch, work, middle).cost, device, work.dtype)
        return cls(device, work.dtype, found)

    @property
    def prefill_in_steps(self) -> float | None:
        """Give how many decode steps the prefill would take as long as; None where nothing is decoded."""
        return self.bounds["prefill"].ms / self.bounds["decode"].ms if "decode" in self.bounds else None

    @property
    def told(self) -> str:
        """Give the device and its peaks in words."""
        return f"{self.device.name}, {self.device.peak_in_words(self.dtype)}"
