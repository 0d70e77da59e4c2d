"""What pages cost, as lines for a terminal and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pytest_dsocr.contract.presets import crop_count
from pytest_dsocr.cost.cost import Cost, as_counted
from pytest_dsocr.cost.roofline import Bound, Device, Priced, bound, by_grid
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.foundation.words import aligned, count, entry, si
from pytest_dsocr.perf.summary import ms

HEAD = ("stage", "matrix FLOP", "torch counts", "weights", "moved", "FLOP/byte", "least time", "limit")
GRID_HEAD = ("crops", "pages", "views", "image tokens", "vision FLOP", "page FLOP", "moved", "least time", "")
LEFT = ("stage", "limit", "crops", "")
GPU = "cuda"
"""The kind of every device here, as torch calls it."""
WIDE = 180
"""Columns of a table with layers."""
BAR = 24
"""Characters of the longest bar."""


def in_words(pages: Sequence[Priced]) -> str:
    """Return how many pages there are; of one, its name, its size and what it becomes."""
    work = pages[0].work
    if len(pages) > 1:
        return f"{len(pages)}, {work.preset.name}"
    width, height = work.page_px
    seen = f"{grid_in_words(work)}, {count(len(work.views_px), 'view')}, {work.image_tokens} image tokens"
    return f"{pages[0].name}, {width} x {height} px, {work.preset.name}: {seen}"


def grid_in_words(work: Workload) -> str:
    """Return the grid of a page's crops."""
    columns, rows = work.grid
    return f"{columns} x {rows} crops" if crop_count(work.grid) else "no crops"


def table(page: Priced, device: Device, *, layers: bool = False) -> Iterator[str]:
    """Yield the costs of a page by stage, of decode for a step as well; with ``layers`` those of each layer.

    ``torch counts`` are those of the matrix FLOPs that torch's counter sees with the attention chosen.
    """
    work, counted = page.work, 0
    rows: list[tuple[str, ...]] = [HEAD]
    for name, stage in page.stages.items():
        seen = as_counted(stage, work.attention, GPU)
        counted += seen
        rows.append(_row(name, stage.cost, si(seen), page.bound(name, device)))
        if layers:
            bounds = {layer: bound(cost, device, work.dtype) for layer, cost in stage.layers.items()}
            rows += [_row(f"  {layer}", cost, "", bounds[layer]) for layer, cost in stage.layers.items()]
    rows.append(_row("page", page.cost, si(counted), page.least(device)))
    yield from aligned(rows, LEFT, WIDE)  # names of layers are long
    if steps := work.decode_steps:
        least_ms = page.bound("decode", device).ms / steps
        yield from entry("a step", f"of {steps} of decode takes {ms(least_ms)} at least, {1e3 / least_ms:.0f} a second")


def grids(pages: Sequence[Priced], device: Device) -> Iterator[str]:
    """Yield what a page of each grid costs, and how often the grid comes."""
    rows: list[tuple[str, ...]] = [GRID_HEAD]
    groups = by_grid(pages)
    most = max(map(len, groups.values()))
    for group in groups.values():
        page, bar = group[0], "█" * max(1, round(BAR * len(group) / most))
        numbers = map(str, (len(group), len(page.work.views_px), page.work.image_tokens))
        costs = (si(page.vision.matrix_flops), si(page.cost.matrix_flops), f"{si(page.cost.bytes)}B")
        rows.append((grid_in_words(page.work), *numbers, *costs, ms(page.least(device).ms), bar))
    yield from aligned(rows, LEFT)


def to_json(pages: Sequence[Priced], device: Device, *, layers: bool = False) -> dict[str, Any]:
    """Return the costs of pages as JSON values, with ``layers`` of each layer."""
    return {"device": asdict(device), "pages": [_page_to_json(page, device, layers) for page in pages]}


def _page_to_json(page: Priced, device: Device, layers: bool) -> dict[str, Any]:
    work, stages = page.work, {}
    for name, stage in page.stages.items():
        of_layers = {"layers": {layer: asdict(cost) for layer, cost in stage.layers.items()}} if layers else {}
        stages[name] = {**asdict(stage.cost), "least_ms": page.bound(name, device).ms, **of_layers}
    follows = {name: getattr(work, name) for name in ("grid", "views_px", "image_tokens", "prompt_tokens")}
    return {"page": page.name, **asdict(work), "preset": work.preset.sizes, **follows, "stages": stages}


def _row(name: str, cost: Cost, counted: str, one: Bound) -> tuple[str, ...]:
    moved = (f"{si(cost.weight_bytes)}B", f"{si(cost.bytes)}B", si(cost.intensity))
    return (name, si(cost.matrix_flops), counted, *moved, ms(one.ms), str(one.limit))
