"""What many pages cost, by the grids that they are cut into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.cost.cost import Cost, StageCost, total
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.roofline import Bound, Device, bound
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.families import VISION


@dataclass(frozen=True)
class Priced:
    """A page with what it costs."""

    name: str
    work: Workload
    stages: Mapping[str, StageCost]

    @property
    def cost(self) -> Cost:
        """The whole page."""
        return total(stage.cost for stage in self.stages.values())

    @property
    def vision(self) -> Cost:
        """All that is done before the prefill."""
        return total(self.stages[name].cost for name in VISION)

    def bound(self, stage: str, device: Device) -> Bound:
        """Return the least time of a stage."""
        return bound(self.stages[stage].cost, device, self.work.dtype)

    def least(self, device: Device) -> Bound:
        """Return the least time of the page, whose stages follow one another."""
        return sum((self.bound(stage, device) for stage in self.stages), Bound())


def priced(arch: Architecture, pages: Iterable[tuple[str, Workload]]) -> list[Priced]:
    """Calculate pages, by name; as only the grid matters, pages of one grid are calculated once."""
    known: dict[Workload, Mapping[str, StageCost]] = {}
    found = []
    for name, work in pages:
        key = replace(work, page_px=work.grid)  # stands for all pages of that grid
        if key not in known:
            known[key] = stages_of(arch, work)
        found.append(Priced(name, work, known[key]))
    return found


def by_grid(pages: Iterable[Priced]) -> dict[Grid, list[Priced]]:
    """Group pages by the grid of their crops, the fewest crops first."""
    found: dict[Grid, list[Priced]] = {}
    for page in pages:
        found.setdefault(page.work.grid, []).append(page)
    return dict(sorted(found.items(), key=lambda one: (one[0][0] * one[0][1], one[0])))
