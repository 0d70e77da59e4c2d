"""Figures of many pages: ratios of sums, intervals, aims."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import NormalDist

import pytest

from ci.training.figures import MEASURES, Figure, bootstrap, figures, table, wilson
from ci.training.quality import PageQuality

GOOD = PageQuality(
    true_boxes=10,
    answered_boxes=10,
    matched_boxes=10,
    iou_sum=9.0,
    good_boxes=10,
    labelled_boxes=10,
    title_characters=20,
    title_errors=0,
    text_characters=100,
    text_errors=0,
    moved_blocks=0,
    ended=True,
    degenerate=False,
)
POOR = replace(
    GOOD,
    true_boxes=30,
    answered_boxes=29,
    matched_boxes=20,
    iou_sum=12.0,
    good_boxes=16,
    labelled_boxes=14,
    title_errors=3,
    text_characters=300,
    text_errors=80,
    moved_blocks=4,
    ended=False,
    degenerate=True,
)


def by_key(*pages: PageQuality) -> dict[str, Figure]:
    return {figure.measure.key: figure for figure in figures(pages)}


def test_figures_are_ratios_of_sums_and_not_means_of_ratios() -> None:
    assert {key: figure.value for key, figure in by_key(GOOD, POOR).items()} == {
        "exact_boxes": 1 / 2,
        "iou": 21 / 30,
        "found": 26 / 40,
        "labels": 24 / 40,
        "title_errors": 3 / 40,
        "text_errors": 80 / 400,
        "in_order": 1 / 2,
        "ended": 1 / 2,
        "degenerate": 1 / 2,
    }


def test_aims_are_met_or_missed_or_absent() -> None:
    aimed = {measure.key for measure in MEASURES if measure.aim is not None}
    assert {key for key, figure in by_key(GOOD).items() if figure.meets_aim} == aimed
    assert {key for key, figure in by_key(POOR).items() if figure.meets_aim is False} == aimed
    assert aimed == {"exact_boxes", "iou", "labels", "title_errors", "text_errors", "ended", "degenerate"}


def test_an_aim_reached_exactly_is_met() -> None:
    page = replace(GOOD, iou_sum=8.5, title_errors=1, text_errors=15)
    found = by_key(page)
    assert all(found[key].meets_aim for key in ("iou", "title_errors", "text_errors"))


def test_what_there_is_nothing_of_is_not_measured() -> None:
    found = by_key(replace(GOOD, true_boxes=0, matched_boxes=0, title_characters=0))
    for key in ("iou", "found", "labels", "title_errors"):
        assert math.isnan(found[key].value)
        assert found[key].meets_aim is None
        assert found[key].to_json()["value"] is None
    lines = list(table(list(found.values())))
    assert " ".join(lines[2].split()) == "IoU of matched boxes - 0 at least 0.850: not measured"
    json.dumps([figure.to_json() for figure in found.values()], allow_nan=False)


@pytest.mark.parametrize(
    ("part", "whole", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (180, 200, 0.8506, 0.9343)],
)
def test_wilson_intervals_of_the_textbook(part: int, whole: int, low: float, high: float) -> None:
    assert wilson(part, whole) == pytest.approx((low, high), abs=1e-4)


def test_bootstrap_of_pages_that_are_alike_is_a_point() -> None:
    assert bootstrap([1, 2, 3], [2, 4, 6]) == (0.5, 0.5)
    assert bootstrap([0, 1], [0, 4]) == (0.25, 0.25), "pages without any do not count"


def test_bootstrap_has_the_width_that_theory_gives() -> None:
    values = [NormalDist(10, 2).inv_cdf((k + 0.5) / 400) for k in range(400)]
    low, high = bootstrap(values, [1.0] * 400)
    assert (low, high) == pytest.approx((10 - 1.96 * 2 / 20, 10 + 1.96 * 2 / 20), abs=0.02)
    assert bootstrap(values, [1.0] * 400) == (low, high)


def test_a_share_of_pages_has_wilsons_interval_and_a_ratio_the_bootstraps() -> None:
    found = by_key(GOOD, GOOD, POOR)
    assert (found["ended"].low, found["ended"].high) == wilson(2, 3)
    assert (found["iou"].low, found["iou"].high) == bootstrap([9, 9, 12], [10, 10, 20])


def test_the_table_says_values_counts_and_aims() -> None:
    lines = [line.split() for line in table(figures([GOOD, POOR]))]
    assert len(lines) == 1 + len(MEASURES)
    assert " ".join(lines[1]).endswith("2 at least 90.0 %: missed")
    assert " ".join(lines[2]).startswith("IoU of matched boxes 0.700 0.600 to 0.900 30 at least")
    assert " ".join(lines[5]).startswith("character errors of titles 7.5 %")
    assert "aim" not in lines[3]


def test_json_has_the_counts_behind_a_figure() -> None:
    found = by_key(GOOD, POOR)["labels"].to_json()
    assert (found["part"], found["whole"], found["value"]) == (24, 40, 0.6)
    assert (found["aim"], found["meets_aim"]) == (0.98, False)
