"""Times of stages, compared with the baseline's by their limits and the measured noise."""

from collections.abc import Callable

import pytest

from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.timing.rounds import QUANTITIES

pytestmark = pytest.mark.dsocr_perf


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_is_no_slower(quantity: str, dsocr_timing: Callable[[str], Comparison], dsocr_check: Check) -> None:
    dsocr_check([dsocr_timing(quantity)])
