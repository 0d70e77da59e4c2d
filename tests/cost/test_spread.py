"""What many pages cost: the shipped ones, by their grids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from pytest_dsocr.contract.image import image_size, load_image
from pytest_dsocr.contract.presets import PRESETS, crop_grid
from pytest_dsocr.cost import spread
from pytest_dsocr.cost.model import stages_of
from pytest_dsocr.cost.roofline import devices
from pytest_dsocr.cost.spread import FIGURES, Priced, by_grid, five_numbers, priced
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages.page_list import shipped

FULL = SYNTHETIC["full"]


def works(preset: str = "gundam") -> Iterator[tuple[str, Workload]]:
    for path in shipped("all"):
        yield path.name, Workload(image_size(path), PRESETS[preset], 9, 64)


@pytest.fixture(scope="module")
def pages() -> list[Priced]:
    return priced(FULL, works())


def test_a_page_costs_what_it_costs_by_itself(pages: list[Priced]) -> None:
    assert len(pages) == len(shipped("all"))
    for page in pages:
        assert page.stages == stages_of(FULL, page.work)


def test_pages_of_one_grid_are_calculated_once(monkeypatch: pytest.MonkeyPatch, pages: list[Priced]) -> None:
    calculated = MagicMock(side_effect=stages_of)
    monkeypatch.setattr(spread, "stages_of", calculated)
    assert priced(FULL, works()) == pages
    assert calculated.call_count == len({page.work.grid for page in pages}) < len(pages)


def test_grids_are_those_of_the_loaded_pages(pages: list[Priced]) -> None:
    loaded = Counter(crop_grid(*load_image(path).size) for path in shipped("all"))
    groups = by_grid(pages)
    assert {grid: len(group) for grid, group in groups.items()} == loaded
    sizes = [columns * rows for columns, rows in groups]
    assert sizes == sorted(sizes)


def test_without_crops_all_pages_cost_the_same() -> None:
    pages = priced(FULL, works("base"))
    assert {*by_grid(pages)} == {(1, 1)}
    assert len({page.cost for page in pages}) == 1


def test_figures_and_the_least_time_are_of_the_whole_page(pages: list[Priced]) -> None:
    page, device = pages[0], devices()["h200"]
    figures = {name: figure(page) for name, figure in FIGURES.items()}
    parts = sum(figures[f"{part} TFLOP"] for part in ("vision", "prefill", "decode"))
    assert figures["page TFLOP"] == pytest.approx(parts)
    assert figures["page GB"] == pytest.approx(page.cost.bytes / 1e9)
    assert page.least(device).ms == pytest.approx(sum(page.bound(stage, device).ms for stage in page.stages))
    assert figures["views"] == len(page.work.views_px)


def test_quartiles_lie_between_the_extremes() -> None:
    assert five_numbers([5.0]) == (5.0,) * 5
    assert five_numbers([4.0, 1.0, 2.0, 3.0, 5.0]) == (1.0, 2.0, 3.0, 4.0, 5.0)


@pytest.mark.parametrize(
    "wrong", [{"batch": -2}, {"batch": 0}, {"dtype": "fp8"}, {"page_px": (0, 9)}, {"text_tokens": -1}]
)
def test_what_cannot_be_costs_nothing_and_is_refused(wrong: dict[str, Any]) -> None:
    what = {"page_px": (9, 9), "preset": PRESETS["tiny"], "text_tokens": 1, "generated_tokens": 1, **wrong}
    with pytest.raises(DsocrError, match=f"a workload has {next(iter(wrong))}="):
        Workload(**what)
