"""Measured times beside the least times that a device allows: how near they are, and what keeps them away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from pytest_dsocr.cost.roof import Roof
from pytest_dsocr.cost.roofline import Bound, Device, Limit, Share, limit_of
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.perf.host import idle_share
from pytest_dsocr.perf.rounds import Measured

TOKENS = ("tokens.prompt", "tokens.image", "tokens.output")
NOT_KNOWN = "not known"
WHY_NOT_KNOWN = "below half of the roof, and how long the device idled was not counted"


@dataclass(frozen=True)
class Nearness:
    """One measured time, and the roof over it."""

    quantity: str
    measured_ms: float
    bound: Bound
    limit: Limit | None
    """None where it is not known: see :func:`~pytest_dsocr.cost.roofline.limit_of`."""

    @property
    def share(self) -> Share:
        """How near it is."""
        return self.bound.share(self.measured_ms)

    @property
    def limit_in_words(self) -> str:
        """Give what limits it."""
        return str(self.limit or NOT_KNOWN)

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {
            "measured_ms": self.measured_ms,
            "least_ms": self.bound.ms,
            "share": asdict(self.share),
            "limit": self.limit_in_words,
        }


def roof_over(measured: Measured, arch: Architecture, page_px: tuple[int, int], device: Device) -> Roof | None:
    """Give the roof over a measured page; None where its tokens were not counted, or its dtype has no peak."""
    exact, setup, page = measured.exact, measured.identity["setup"], measured.identity["page"]
    if not {*TOKENS} <= {*exact} or setup["dtype"] not in device.tflops:
        return None
    prompt, image, output = (exact[name] for name in TOKENS)
    how = {"dtype": setup["dtype"], "attention": setup["attention"]}
    return Roof.of(arch, Workload(page_px, DEFAULT.preset(page["preset"]), prompt - image, output, **how), device)


def nearness(measured: Measured, roof: Roof) -> Iterator[Nearness]:
    """Yield each time that was taken in the good rounds and that has a roof, in the order of the stages."""
    for quantity in measured.quantities:
        if one := roof.bounds.get(quantity):
            measured_ms = median(measured.wall_ms(quantity))
            yield Nearness(quantity, measured_ms, one, limit_of(one, measured_ms, idle_share(measured, quantity)))


def to_json(measured: Measured, roof: Roof) -> dict[str, Any]:
    """Give the roof over a measurement as JSON values."""
    return {
        "device": roof.told,
        "source": roof.device.source,
        "prefill_in_steps": roof.prefill_in_steps,
        "times": {one.quantity: one.to_json() for one in nearness(measured, roof)},
    }
