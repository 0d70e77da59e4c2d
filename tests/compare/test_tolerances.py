"""How far apart two sides may be, by what they compute in."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsocr.compare.tolerances import BY_DTYPE, NAMES, Tolerances, check_tolerance, tolerances
from pytest_dsocr.foundation.errors import DsocrError


@pytest.mark.parametrize(
    ("dtypes", "coarser"),
    [
        (["float32", "float32"], "float32"),
        (["float32", "float16"], "float16"),
        (["bfloat16", "float32"], "bfloat16"),
        (["float16", "bfloat16"], "bfloat16"),
        (["bfloat16", "float16"], "bfloat16"),
    ],
)
def test_the_coarser_of_two_dtypes_decides(dtypes: list[str], coarser: str) -> None:
    assert tolerances(*dtypes) is BY_DTYPE[coarser]
    assert tolerances(*dtypes).dtype == coarser


def test_coarser_dtypes_allow_more_and_none_as_much_as_another_tensor_would_need() -> None:
    ordered = [BY_DTYPE[name] for name in ("float32", "float16", "bfloat16")]
    for finer, coarser in pairwise(ordered):
        assert finer.seam < coarser.seam < 0.1
        assert finer.logits < coarser.logits < 0.1
        assert finer.mantissa_bits > coarser.mantissa_bits
    for limits in ordered:
        epsilon = torch.finfo(getattr(torch, limits.dtype)).eps
        assert 2.0**-limits.mantissa_bits == epsilon
        assert epsilon < limits.seam <= limits.logits
        assert limits.ties * epsilon < 2 * limits.logits, "the logits of both tokens may be off"


def test_vision_has_a_limit_of_its_own_in_bfloat16_until_one_is_given_for_all_seams() -> None:
    limits = tolerances("bfloat16")
    names = ("sam.page/3", "vision_fusion", "prefill/0", "prefill")
    assert [limits.of_seam(name) for name in names] == [0.02, 0.02, 0.03, 0.06]
    assert [limits.but({"seam": 0.05}).of_seam(name) for name in names] == [0.05, 0.05, 0.05, 0.06]
    assert [limits.but({"seam": 0.01}).of_seam(name) for name in names] == [0.01, 0.01, 0.01, 0.06]


@pytest.mark.parametrize("unknown", ["float64", "int8", ""])
def test_a_dtype_without_tolerances_is_refused(unknown: str) -> None:
    with pytest.raises(
        DsocrError, match=rf"^there are no tolerances for {unknown}; there are for float32, float16, bf"
    ):
        tolerances("float32", unknown)


@settings(database=None, deadline=None)
@given(st.sampled_from(sorted(BY_DTYPE)), st.floats(2**-10, 2**14), st.sampled_from([1, -1]))
def test_a_ulp_is_the_distance_to_the_next_number(dtype: str, size: float, sign: int) -> None:
    number = torch.tensor(size).to(getattr(torch, dtype))
    beyond = torch.nextafter(number, torch.full_like(number, torch.inf))
    assert BY_DTYPE[dtype].ulp(sign * float(number)) == float(beyond) - float(number)


def test_the_ulp_of_zero_is_that_of_one() -> None:
    assert BY_DTYPE["bfloat16"].ulp(0.0) == BY_DTYPE["bfloat16"].ulp(1.0) == 2**-7


def test_outputs_are_exact_under_one_key_and_may_differ_a_little_between_two() -> None:
    same, between = tolerances("float32", "bfloat16"), tolerances("float32", "bfloat16", same_key=False)
    assert (same.boxes, same.coords, same.text) == (0, 0.0, 0.0)
    assert (between.boxes, between.coords, between.text) == (1, 0.02, 0.0)
    assert between.logits == 0.15, "of the worst of some 200 steps, as measured"
    assert replace(between, boxes=0, coords=0.0, logits=same.logits, usual=same.usual) == same
    exact = tolerances("float32", same_key=False)
    assert replace(exact, boxes=0, coords=0.0, usual=2e-6) == tolerances("float32")


def test_some_are_replaced_by_name() -> None:
    exact = tolerances("float32")
    assert exact.but({}) == exact
    loose = exact.but({"boxes": 2, "coords": 0.5, "text": 1, "seam": 0.1, "logits": 0.2, "ties": 8})
    assert (loose.boxes, loose.coords, loose.text, loose.seam, loose.logits, loose.ties) == (2, 0.5, 1, 0.1, 0.2, 8)
    assert (loose.dtype, loose.mantissa_bits) == ("float32", 23)
    assert set(NAMES) == {field.name for field in fields(Tolerances)} - {"dtype", "mantissa_bits", "usual", "vision"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("box", 1, "there is no tolerance 'box'; there are boxes, coords, text, seam, logits, ties"),
        (
            "mantissa_bits",
            1,
            "there is no tolerance 'mantissa_bits'; there are boxes, coords, text, seam, logits, ties",
        ),
        ("boxes", -1, "the tolerance boxes=-1 is not a whole number of 0 or more; give one"),
        ("boxes", 1.0, "the tolerance boxes=1.0 is not a whole number of 0 or more; give one"),
        ("boxes", True, "the tolerance boxes=True is not a whole number of 0 or more; give one"),
        ("ties", "4", "the tolerance ties='4' is not a whole number of 0 or more; give one"),
        ("coords", -0.1, "the tolerance coords=-0.1 is not a number of 0 or more; give one"),
        ("coords", math.nan, "the tolerance coords=nan is not a number of 0 or more; give one"),
        ("text", math.inf, "the tolerance text=inf is not a number of 0 or more; give one"),
        ("seam", None, "the tolerance seam=None is not a number of 0 or more; give one"),
        ("logits", False, "the tolerance logits=False is not a number of 0 or more; give one"),
    ],
)
def test_what_is_no_tolerance_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(DsocrError) as caught:
        tolerances("float32").but({name: value})
    assert str(caught.value) == message
    with pytest.raises(DsocrError) as caught:
        check_tolerance(name, value)
    assert str(caught.value) == message


@pytest.mark.parametrize(("name", "value"), [("boxes", 0), ("ties", 9), ("coords", 0), ("coords", 0.0), ("text", 2.5)])
def test_what_is_a_tolerance_is_taken(name: str, value: float) -> None:
    check_tolerance(name, value)
