"""What pages cost, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_dsocr.contract.grid import crop_count
from pytest_dsocr.foundation.words import aligned, count, si, told
from pytest_dsocr.perf.nearness import NOT_KNOWN, WHY_NOT_KNOWN, Nearness
from pytest_dsocr.perf.words import ms
from pytest_dsocr.workload.cost import Cost, StageCost, total
from pytest_dsocr.workload.roof import Roof
from pytest_dsocr.workload.roofline import Bound, Device, bound
from pytest_dsocr.workload.spread import FIGURES, Priced, by_grid, five_numbers
from pytest_dsocr.workload.workload import Workload

HEAD = ("stage", "matrix FLOP", "other FLOP", "weights", "moved", "FLOP/byte", "least time", "limit")
NEAR_HEAD = ("time", "measured", "least", "of the roof", "MFU", "bandwidth", "limit")
FIVE = ("least", "lower quartile", "median", "upper quartile", "greatest")
SPREAD_HEAD = ("of a page", *FIVE)
LEAST = "least ms"
GRID_HEAD = ("crops", "pages", "views", "image tokens", "vision FLOP", "page FLOP", "moved", "least time", "")
LEFT = ("stage", "time", "limit", "of a page", "crops", "")
BAR = 24
"""Characters of the longest bar."""


def work_in_words(work: Workload) -> str:
    """Give a page's size, and what it becomes."""
    width, height = work.page_px
    views = count(len(work.views_px), "view")
    return (
        f"{width} x {height} px, {work.preset.name}: {grid_in_words(work)}, {views}, {work.image_tokens} image tokens"
    )


def grid_in_words(work: Workload) -> str:
    """Give the grid of a page's crops."""
    columns, rows = work.grid
    return f"{columns} x {rows} crops" if crop_count(work.grid) else "no crops"


def table(stages: Mapping[str, StageCost], step: StageCost | None, roof: Roof, *, layers: bool) -> Iterator[str]:
    """Yield the costs of one page by stage, and of one decode step; with ``layers`` those of each layer as well."""
    rows: list[tuple[str, ...]] = [HEAD]
    least = Bound()
    for name, stage in stages.items():
        one = bound(stage.cost, roof.device, roof.dtype)
        least += one
        rows.append(_row(name, stage.cost, one))
        if layers:
            rows += [_row(f"  {layer}", cost, _bound(cost, roof)) for layer, cost in stage.layers.items()]
    rows.append(_row("page", total(stage.cost for stage in stages.values()), least))
    if step is not None:
        rows.append(_row("a decode step", step.cost, _bound(step.cost, roof)))
    yield from aligned(rows, LEFT)


def near_table(near: Sequence[Nearness]) -> Iterator[str]:
    """Yield measured times beside the least ones, and what limits them."""
    yield from aligned([NEAR_HEAD, *map(_near_row, near)], LEFT)
    if any(one.limit is None for one in near):
        yield from told(NOT_KNOWN, WHY_NOT_KNOWN)


def spread(pages: Sequence[Priced], device: Device) -> Iterator[str]:
    """Yield how the costs of pages lie, and how often which grid comes."""
    rows = [(name, *(f"{value:.4g}" for value in five)) for name, five in figures_of(pages, device).items()]
    yield from aligned([SPREAD_HEAD, *rows], LEFT)
    yield ""
    yield from aligned([GRID_HEAD, *_grids(pages, device)], LEFT)


def figures_of(pages: Sequence[Priced], device: Device) -> dict[str, tuple[float, ...]]:
    """Give the least, the quartiles and the greatest of each figure that is told of a page."""
    figures = {name: five_numbers([figure(page) for page in pages]) for name, figure in FIGURES.items()}
    return {**figures, LEAST: five_numbers([sum(page.least_ms(device).values()) for page in pages])}


def to_json(pages: Sequence[Priced], device: Device) -> dict[str, Any]:
    """Give the costs of pages as JSON values."""
    return {
        "device": asdict(device),
        "pages": [_page_to_json(page, device) for page in pages],
        "spread": {name: dict(zip(FIVE, five, strict=True)) for name, five in figures_of(pages, device).items()},
    }


def _page_to_json(page: Priced, device: Device) -> dict[str, Any]:
    work, least_ms = page.work, page.least_ms(device)
    return {
        "page": page.name,
        "page_px": work.page_px,
        "preset": work.preset.name,
        "grid": work.grid,
        "views_px": work.views_px,
        "image_tokens": work.image_tokens,
        "prompt_tokens": work.prompt_tokens,
        "generated_tokens": work.generated_tokens,
        "dtype": work.dtype,
        "attention": work.attention,
        "stages": {name: {**asdict(stage.cost), "least_ms": least_ms[name]} for name, stage in page.stages.items()},
        "layers": {
            name: {layer: asdict(cost) for layer, cost in stage.layers.items()} for name, stage in page.stages.items()
        },
    }


def _grids(pages: Sequence[Priced], device: Device) -> Iterator[tuple[str, ...]]:
    groups = by_grid(pages)
    most = max(map(len, groups.values()))
    for group in groups.values():
        page = group[0]
        yield (
            grid_in_words(page.work),
            str(len(group)),
            str(len(page.work.views_px)),
            str(page.work.image_tokens),
            si(page.vision.flops),
            si(page.cost.flops),
            f"{si(page.cost.bytes)}B",
            ms(sum(page.least_ms(device).values())),
            "█" * max(1, round(BAR * len(group) / most)),
        )


def _row(name: str, cost: Cost, one: Bound) -> tuple[str, ...]:
    return (
        name,
        si(cost.matrix_flops),
        si(cost.other_flops),
        f"{si(cost.weight_bytes)}B",
        f"{si(cost.bytes)}B",
        f"{cost.intensity:.3g}",
        ms(one.ms),
        str(one.limit),
    )


def _near_row(one: Nearness) -> tuple[str, ...]:
    share = one.share
    shares = (f"{value:.1%}" for value in (share.roof, share.mfu, share.bandwidth))
    return (one.quantity, ms(one.measured_ms), ms(one.bound.ms), *shares, one.limit_in_words)


def _bound(cost: Cost, roof: Roof) -> Bound:
    return bound(cost, roof.device, roof.dtype)
