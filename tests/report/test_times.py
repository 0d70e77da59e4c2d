"""The times of a run as rows, for the terminal and for the page."""

from __future__ import annotations

import json
import math
from typing import Any

from pytest_dsocr.perf.statistics import Judgement, Pace
from pytest_dsocr.report.times import Row, rows, table

MEDIANS = {"sam": 12.0, "decode": 17.04, "page": 100.0}
SLOWER = Judgement("decode", Pace.SLOWER, 14.2, 17.04, 1.2, 1.18, 1.225, 0.05, 24, 24)
SAME = Judgement("page", Pace.SAME, 101.0, 100.0, 0.99, 0.98, 1.0, 0.05, 24, 24)
NONE = Judgement("sam", Pace.NOT_COMPARED, math.nan, 12.0, math.nan, math.nan, math.nan, 0.05, 0, 0, "no rounds")


ROOF = {
    "times": {
        "sam": {"least_ms": 2.3, "share": {"roof": 0.192}, "limit": "compute-bound"},
        "decode": {"least_ms": 0.249, "share": {"roof": 0.0146}, "limit": "launch-bound"},
    }
}


def perf(*judgements: Judgement, **medians_ms: float) -> dict[str, Any]:
    """As ``PerfRun.to_json`` gives it."""
    return {"median_ms": medians_ms or MEDIANS, "judgements": [one.to_json() for one in judgements]}


def test_each_quantity_has_a_row_in_the_order_of_the_stages() -> None:
    sam, decode, page = rows(perf(SAME, SLOWER))
    assert (decode.quantity, decode.median, decode.baseline) == ("decode", "17 ms", "14.2 ms")
    assert (decode.ratio, decode.interval, decode.pace) == ("1.200", "1.180 to 1.225", "SLOWER")
    assert (page.quantity, page.pace, page.ratio) == ("page", "SAME", "0.990")
    assert (sam.quantity, sam.median, sam.baseline, sam.ratio, sam.interval, sam.pace) == ("sam", "12 ms", *[""] * 4)


def test_a_bar_is_a_share_of_the_page_and_never_longer() -> None:
    assert [one.share for one in rows(perf())] == [12.0, 17.04, 100.0]
    assert [one.share for one in rows(perf(vision=150.0, page=100.0))] == [100.0, 100.0]
    assert [one.share for one in rows(perf(sam=12.0))] == [0.0], "without a page there is nothing to share"


def test_what_was_not_compared_shows_no_figures() -> None:
    assert json.loads(json.dumps(NONE.to_json(), allow_nan=False))["ratio"] is None, "as dsocr.json is written"
    sam, *_ = rows(perf(NONE))
    assert (sam.baseline, sam.ratio, sam.interval, sam.pace) == ("", "", "", "NOT-COMPARED")


def test_the_table_is_aligned_and_each_line_has_its_verdict() -> None:
    assert list(table(perf(SLOWER, SAME))) == [
        Row("stage   this run  baseline  ratio        interval"),
        Row("sam        12 ms"),
        Row("decode     17 ms   14.2 ms  1.200  1.180 to 1.225  SLOWER", "SLOWER"),
        Row("page      100 ms    101 ms  0.990  0.980 to 1.000  SAME", "SAME"),
    ]


def test_without_a_baseline_it_has_no_columns_of_one() -> None:
    assert [row.text for row in table(perf())] == [
        "stage   this run",
        "sam        12 ms",
        "decode     17 ms",
        "page      100 ms",
    ]


def test_under_a_roof_it_tells_the_least_time_the_share_and_the_limit() -> None:
    assert list(table({**perf(SLOWER), "roof": ROOF})) == [
        Row("stage   this run      roof  of it          limit  baseline  ratio        interval"),
        Row("sam        12 ms    2.3 ms  19.2%  compute-bound"),
        Row("decode     17 ms  0.249 ms   1.5%   launch-bound   14.2 ms  1.200  1.180 to 1.225  SLOWER", "SLOWER"),
        Row("page      100 ms"),
    ]
    *_, page = rows({**perf(), "roof": ROOF})
    assert (page.roof, page.near, page.limit) == ("", "", "")


def test_without_a_roof_nothing_is_told_of_it() -> None:
    assert [*rows({**perf(), "roof": None})] == [*rows(perf())]


def test_nothing_measured_is_no_table() -> None:
    assert list(table({"median_ms": {}, "judgements": []})) == []
