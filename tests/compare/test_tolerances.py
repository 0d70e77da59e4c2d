"""How far apart two sides may be, by what they compute in."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.tolerances import BY_DTYPE, NAMES, tolerances
from pytest_dsocr.foundation.errors import DsocrError


def test_the_coarser_of_two_dtypes_decides() -> None:
    for *dtypes, coarser in (
        ("float32", "float32", "float32"),
        ("float32", "float16", "float16"),
        ("bfloat16", "float32", "bfloat16"),
        ("float16", "bfloat16", "bfloat16"),
    ):
        assert tolerances(*dtypes) is BY_DTYPE[coarser]
        assert 2.0 ** -BY_DTYPE[coarser].mantissa_bits == torch.finfo(getattr(torch, coarser)).eps
    with pytest.raises(DsocrError, match="float64"):
        tolerances("float32", "float64")


def test_vision_has_a_limit_of_its_own_in_bfloat16_until_one_is_given_for_all_seams() -> None:
    limits = tolerances("bfloat16")
    names = ("sam.page/3", "vision_fusion", "prefill/0", "prefill")
    assert [limits.of_seam(name) for name in names] == [0.02, 0.02, 0.03, 0.06]
    assert [limits.but({"seam": 0.05}).of_seam(name) for name in names] == [0.05, 0.05, 0.05, 0.06]
    assert [limits.but({"seam": 0.01}).of_seam(name) for name in names] == [0.01, 0.01, 0.01, 0.06]


def test_a_ulp_is_the_distance_to_the_next_number() -> None:
    for limits in BY_DTYPE.values():
        epsilon = 2.0**-limits.mantissa_bits
        assert [limits.ulp(one) for one in (1.0, -6.0, 0.0, 0.3)] == [epsilon, 4 * epsilon, epsilon, epsilon / 4]
        assert limits.ulp(5e-324) > 0.0


def test_outputs_are_exact_under_one_key_and_may_differ_a_little_between_two() -> None:
    same, between = tolerances("float32", "bfloat16"), tolerances("float32", "bfloat16", same_key=False)
    assert (same.boxes, same.coords, same.text) == (0, 0.0, 0.0)
    assert (between.boxes, between.coords, between.text) == (1, 0.02, 0.0)
    assert between.logits == 0.15, "of the worst of some 200 steps, as measured"
    assert replace(between, boxes=0, coords=0.0, logits=same.logits, usual=same.usual) == same
    exact = tolerances("float32", same_key=False)
    assert replace(exact, boxes=0, coords=0.0, usual=2e-6) == tolerances("float32")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("box", 1), ("mantissa_bits", 1), ("boxes", -1), ("boxes", 1.0), ("boxes", True), ("ties", "4")),
        *(("coords", -0.1), ("coords", math.nan), ("text", math.inf), ("seam", None), ("logits", False)),
    ],
)
def test_what_is_no_tolerance_is_refused(name: str, value: Any) -> None:
    with pytest.raises(DsocrError, match=name):
        tolerances("float32").but({name: value})


def test_what_is_a_tolerance_is_taken() -> None:
    values: dict[str, Any] = {"boxes": 2, "coords": 0.5, "text": 1, "seam": 0.1, "logits": 0.2, "ties": 8}
    values |= {"rounding": 1.5}
    exact = tolerances("float32")
    assert exact.but(values) == replace(exact, **values, vision=math.inf)
    assert {*values} == {*NAMES}
