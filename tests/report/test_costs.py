"""Costs told and drawn: what a reader sees is what was calculated."""

from __future__ import annotations

import re
from dataclasses import asdict
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.cost.pages import Priced, priced
from pytest_dsocr.cost.roofline import bound, devices
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.report import costs
from pytest_dsocr.report.costs import BOTTOM, HEIGHT, MARGIN, Chart, chart, ticks

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


def drawn(pages: list[Priced]) -> Chart:
    stages = [*pages[0].stages]
    return chart("FLOPs", pages, stages, lambda page, stage: page.stages[stage].cost.matrix_flops, "{:.3g}".format)


def test_what_the_terminal_shows(pages: list[Priced], snapshot: SnapshotAssertion) -> None:
    shown = [*costs.table(pages[0], H200, layers=True), "", *costs.spread(pages, H200)]
    assert "\n".join([*(costs.in_words(of) for of in (pages[:1], pages[2:3], pages)), "", *shown]) == snapshot


def test_the_table_has_a_row_a_stage_and_the_sum(pages: list[Priced]) -> None:
    _, *rows, step = costs.table(pages[0], H200)
    assert [row.split()[0] for row in rows] == [*pages[0].stages, "page"]
    least = sum(pages[0].bound(stage, H200).ms for stage in pages[0].stages)
    assert rows[-1].endswith(f"  {least:.1f} ms  memory-bound"), "stage after stage, and not all at once"
    assert step.startswith("a step ")
    [once] = priced(FULL, [("a.png", Workload((600, 400), DEFAULT.presets["tiny"], 9, 1))])
    assert [*costs.table(once, H200)][-1].startswith("page "), "of a page without a step none is told"


def test_what_torchs_counter_does_not_see_is_told_beside_it() -> None:
    work = Workload((1200, 1200), DEFAULT.presets["gundam"], 9, 65, attention="flash_attention_2")
    [page] = priced(FULL, [("a.png", work)])
    rows = [*costs.table(page, H200)]
    prefill = next(row for row in rows if row.startswith("prefill"))
    all_of_it, counted = (float(cell) for cell in prefill.split()[1:5:2])
    assert 0.9 * all_of_it < counted < all_of_it


def test_json_has_every_figure(pages: list[Priced]) -> None:
    found = costs.to_json(pages, (), H200, layers=True)
    square = found["pages"][0]
    assert square["stages"]["sam"]["matrix_flops"] == pages[0].stages["sam"].cost.matrix_flops
    assert square["stages"]["clip"]["least_ms"] == bound(pages[0].stages["clip"].cost, H200, "bfloat16").ms
    layer = "model.layers.3.self_attn"
    assert square["stages"]["prefill"]["layers"][layer] == asdict(pages[0].stages["prefill"].layers[layer])
    assert (square["grid"], square["image_tokens"], square["preset"]["name"]) == ((2, 2), 693, "gundam")
    assert found["spread"]["image tokens"]["median"] == 648
    assert "layers" not in costs.to_json(pages, (), H200)["pages"][0]["stages"]["sam"]


def test_a_bar_is_as_high_as_its_page_costs(pages: list[Priced]) -> None:
    found, room = drawn(pages), HEIGHT - BOTTOM - MARGIN
    most = max(page.cost.matrix_flops for page in pages)
    for place, page in enumerate(pages):
        bar = found.pieces[place * 6 : place * 6 + 6]
        assert [piece.stage for piece in bar] == [*page.stages]
        assert sum(piece.height for piece in bar) == pytest.approx(room * page.cost.matrix_flops / most)
        assert bar[0].y + bar[0].height == pytest.approx(HEIGHT - BOTTOM)
        for below, above in pairwise(bar):
            assert above.y + above.height == pytest.approx(below.y)
    assert min(piece.y for piece in found.pieces) == pytest.approx(MARGIN)


def test_bars_stand_apart_and_inside() -> None:
    many = priced(FULL, [(f"{k}.png", Workload((600, 400), DEFAULT.presets["tiny"], 9, 2)) for k in range(500)])
    found = drawn(many)
    lefts = [piece for piece in found.pieces if piece.stage == "sam"]
    assert all(one.x + one.width < other.x for one, other in pairwise(lefts))
    assert lefts[-1].x + lefts[-1].width <= costs.WIDTH
    assert lefts[0].x >= costs.CHART_LEFT


@pytest.mark.parametrize(
    ("most", "expected"),
    [(5.5, [0, 1, 2, 3, 4, 5]), (268.0, [0, 50, 100, 150, 200, 250]), (3.0, [0, 1, 2, 3]), (0.7, [0, 0.2, 0.4, 0.6])],
)
def test_lines_are_at_round_numbers(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)


def test_the_drawn_page_is_whole_and_escaped(pages: list[Priced]) -> None:
    page = costs.html(pages, H200)
    assert "square &amp; more.png" in page
    assert "& more" not in page
    assert "script" not in page
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg viewBox=\"0 0 960.*?</svg>", page, re.DOTALL)]
    assert [len(one.findall("rect")) for one in charts] == [4 * 6, 4 * 5]
    titles = [one.findtext("title") or "" for one in charts[0].findall("rect")]
    assert any(re.fullmatch(r"sam .* TFLOP of .* TFLOP, narrow.png, 1 x 3 crops", title) for title in titles)
    labels = [one.text for one in charts[0].findall("text") if one.get("class") == "grid"]
    assert labels == ["1 x 1", "1 x 3", "2 x 2"]
