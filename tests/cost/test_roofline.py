"""The roof: figures that can be checked by hand, and the words for what limits a stage."""

from __future__ import annotations

import pytest

from pytest_dsocr.cost.cost import Cost
from pytest_dsocr.cost.roofline import LAUNCH_BOUND, Bound, Device, Limit, bound, limit_of

DEVICE = Device("A GPU", ("A GPU",), {"bfloat16": 100.0, "float32": 10.0}, 1000.0, 24.0, "made up")
"""100 TFLOP/s and 1000 GB/s: 100 operations a byte."""
PRODUCT = Cost(matrix_flops=10**12, other_flops=10**15, weight_bytes=10**9, read_bytes=10**9, written_bytes=2 * 10**9)


def test_the_roof_is_the_longer_of_two_times() -> None:
    assert bound(PRODUCT, DEVICE, "bfloat16") == Bound(10.0, compute_ms=10.0, memory_ms=4.0)
    assert bound(PRODUCT, DEVICE, "float32") == Bound(100.0, compute_ms=100.0, memory_ms=4.0)
    assert bound(Cost(matrix_flops=1, read_bytes=10**9), DEVICE, "bfloat16").ms == 1.0
    assert bound(Cost(), DEVICE, "bfloat16") == Bound()


@pytest.mark.parametrize(
    ("flops_a_byte", "limit"), [(99, Limit.MEMORY), (101, Limit.COMPUTE), (0, Limit.MEMORY), (10_000, Limit.COMPUTE)]
)
def test_the_ridge_divides_memory_from_compute(flops_a_byte: int, limit: Limit) -> None:
    cost = Cost(matrix_flops=flops_a_byte * 10**9, weight_bytes=10**9)
    assert bound(cost, DEVICE, "bfloat16").limit is limit


def test_what_comes_one_after_the_other_adds_up() -> None:
    compute, memory = Bound(10.0, 10.0, 4.0), Bound(3.0, 1.0, 3.0)
    assert compute + memory == Bound(13.0, 11.0, 7.0), "more than the longer of the sums, 11 ms"


def test_shares_are_of_each_peak() -> None:
    share = Bound(10.0, 10.0, 4.0).share(40.0)
    assert (share.roof, share.mfu, share.bandwidth) == (0.25, 0.25, 0.1)


@pytest.mark.parametrize(
    ("roof", "measured_ms", "idle", "limit"),
    [
        (Bound(10.0, 10.0, 4.0), 40.0, 0.8, Limit.LAUNCHES),
        (Bound(10.0, 10.0, 4.0), 40.0, 0.2, Limit.KERNELS),
        (Bound(10.0, 10.0, 4.0), 20.0, 0.2, Limit.COMPUTE),
        (Bound(4.0, 1.0, 4.0), 8.0, 0.0, Limit.MEMORY),
        (Bound(4.0, 1.0, 4.0), 16.0, LAUNCH_BOUND, Limit.MEMORY),
        (Bound(4.0, 1.0, 4.0), 16.1, LAUNCH_BOUND, Limit.KERNELS),
        (Bound(10.0, 10.0, 4.0), 40.0, None, None),
        (Bound(10.0, 10.0, 4.0), 20.1, None, None),
        (Bound(10.0, 10.0, 4.0), 20.0, None, Limit.COMPUTE),
        (Bound(4.0, 1.0, 4.0), 5.0, None, Limit.MEMORY),
    ],
)
def test_what_limits_a_stage_is_told_only_where_it_is_known(
    roof: Bound, measured_ms: float, idle: float | None, limit: Limit | None
) -> None:
    """At half of the roof the device was busy for half of the time at least, whoever counted."""
    assert limit_of(roof, measured_ms, idle) is limit
