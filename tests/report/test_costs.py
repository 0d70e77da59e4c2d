"""Costs in words and pictures: what a reader sees is what was calculated."""

from dataclasses import asdict

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.cost.roofline import Priced, bound, devices, priced
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.report import costs

FULL, H200 = SYNTHETIC["full"], devices()["h200"]
SIZES = {
    "square & more.png": (1200, 1200),
    "narrow.png": (640, 1900),
    "small.png": (600, 400),
    "again.png": (1300, 1300),
}


@pytest.fixture(scope="module")
def pages() -> list[Priced]:
    works = ((name, Workload(size, DEFAULT.presets["gundam"], 9, 65)) for name, size in SIZES.items())
    return priced(FULL, works)


def test_what_the_terminal_shows(pages: list[Priced], snapshot: SnapshotAssertion) -> None:
    shown = [*costs.table(pages[0], H200, layers=True), "", *costs.grids(pages, H200)]
    assert "\n".join([*(costs.in_words(of) for of in (pages[:1], pages[2:3], pages)), "", *shown]) == snapshot


def test_what_torchs_counter_does_not_see_is_reported_beside_it() -> None:
    work = Workload((1200, 1200), DEFAULT.presets["gundam"], 9, 65, attention="flash_attention_2")
    [page] = priced(FULL, [("a.png", work)])
    rows = [*costs.table(page, H200)]
    prefill = next(row for row in rows if row.startswith("prefill"))
    all_of_it, counted = (float(cell) for cell in prefill.split()[1:5:2])
    assert 0.9 * all_of_it < counted < all_of_it


def test_json_has_every_figure(pages: list[Priced]) -> None:
    found = costs.to_json(pages, H200, layers=True)
    square = found["pages"][0]
    assert square["stages"]["sam"]["matrix_flops"] == pages[0].stages["sam"].cost.matrix_flops
    assert square["stages"]["clip"]["least_ms"] == bound(pages[0].stages["clip"].cost, H200, "bfloat16").ms
    layer = "model.layers.3.self_attn"
    assert square["stages"]["prefill"]["layers"][layer] == asdict(pages[0].stages["prefill"].layers[layer])
    assert (square["grid"], square["image_tokens"], square["preset"]["name"]) == ((2, 2), 693, "gundam")
    assert "layers" not in costs.to_json(pages, H200)["pages"][0]["stages"]["sam"]
