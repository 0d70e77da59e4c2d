from __future__ import annotations

import math

import pytest

from pytest_dsocr.perf.limits import limit_of

MEDIANS_MS = {"sam": 40.0, "tokenizer": 0.2, "decode": 15.0, "decode_late": 16.0, "page": 2000.0, "clip": 0.0}


@pytest.mark.parametrize(
    ("quantity", "given", "limit"),
    [
        ("page", {}, 0.05),
        ("page", {"*": 0.02}, 0.02),
        ("page", {"*": 0.02, "page": 0.03}, 0.03),
        ("page", {"page": 0.001}, 0.005),
        ("sam", {}, 0.25),
        ("sam", {"sam": 0.3}, 0.3),
        ("tokenizer", {}, 50.0),
        ("decode", {}, 0.05),
        ("decode_late", {"*": 0.01}, 0.01),
        ("clip", {}, 0.05),
    ],
)
def test_a_limit_is_the_nearest_given_and_raised_for_what_hardly_matters(
    quantity: str, given: dict[str, float], limit: float
) -> None:
    assert limit_of(quantity, given, MEDIANS_MS, MEDIANS_MS["page"]) == pytest.approx(limit)


def test_a_page_without_a_time_raises_no_limit() -> None:
    assert limit_of("sam", {}, {"sam": math.nan}, 2000.0) == limit_of("sam", {}, {"sam": 1.0}, math.nan) == 0.05
