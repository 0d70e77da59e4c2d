"""How far apart two sides may be, by what they compute in."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dsocr.compare.tolerances import BY_DTYPE, tolerances
from pytest_dsocr.errors import DsocrError


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
        assert limits.ties * epsilon < limits.logits


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
