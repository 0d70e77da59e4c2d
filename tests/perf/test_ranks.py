from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pytest_dsocr.perf import ranks
from pytest_dsocr.perf.ranks import Shifts

SIZES = [(1, 1), (1, 4), (5, 7), (12, 12), (30, 48), (48, 48), (120, 90)]


@pytest.mark.parametrize("pairs", [1, 2, 5, 12, 40])
def test_paired_p_values_are_those_of_wilcoxon(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    before, after = rng.normal(size=pairs), rng.normal(0.3, size=pairs)
    shifts = Shifts.of_pairs(before.tolist(), after.tolist())
    for shift in (-0.5, 0.0, 0.3, 2.0):
        of = stats.wilcoxon(after - before - shift, alternative="greater", method="exact")
        assert shifts.p_above(shift) == pytest.approx(of.pvalue, rel=1e-9)
        of = stats.wilcoxon(after - before - shift, alternative="less", method="exact")
        assert shifts.p_below(shift) == pytest.approx(of.pvalue, rel=1e-9)


@pytest.mark.parametrize(("first", "second"), SIZES)
def test_unpaired_p_values_are_those_of_mann_and_whitney(first: int, second: int) -> None:
    rng = np.random.default_rng(first)
    before, after = rng.normal(size=first), rng.normal(0.3, size=second)
    shifts = Shifts.of_runs(before.tolist(), after.tolist())
    for shift in (-0.5, 0.0, 0.3, 2.0):
        of = stats.mannwhitneyu(after - shift, before, alternative="greater", method="exact")
        assert shifts.p_above(shift) == pytest.approx(of.pvalue, rel=1e-9)
        of = stats.mannwhitneyu(after - shift, before, alternative="less", method="exact")
        assert shifts.p_below(shift) == pytest.approx(of.pvalue, rel=1e-9)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("level", [0.2, 0.01, 0.001])
def test_the_interval_is_what_the_tests_do_not_reject(paired: bool, level: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        before, after = rng.normal(size=11).tolist(), rng.normal(0.2, size=11).tolist()
        shifts = (Shifts.of_pairs if paired else Shifts.of_runs)(before, after)
        low, high = shifts.interval(level)
        assert low < shifts.centre < high
        assert shifts.p_above(low - 1e-6) <= level < shifts.p_above(low + 1e-6)
        assert shifts.p_below(high + 1e-6) <= level < shifts.p_below(high - 1e-6)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("level", [0.05, 0.01, 0.0001])
def test_the_fewest_rounds_are_enough_and_one_less_is_not(paired: bool, level: float) -> None:
    fewest = ranks.fewest(level, paired)
    for rounds, enough in ((fewest, True), (fewest - 1, False)):
        before, after = [float(place) for place in range(rounds)], [1000.0 + place for place in range(rounds)]
        shifts = (Shifts.of_pairs if paired else Shifts.of_runs)(before, after)
        assert (shifts.p_above(0) <= level) is enough
        assert shifts.p_above(0) == shifts.least_p
        assert (shifts.interval(level)[0] > -math.inf) is enough


@pytest.mark.parametrize("paired", [True, False])
def test_ties_count_against_the_finding(paired: bool) -> None:
    shifts = (Shifts.of_pairs if paired else Shifts.of_runs)([1.0] * 12, [1.0] * 12)
    assert shifts.p_above(0) == shifts.p_below(0) == 1
    assert shifts.p_above(-0.1) == shifts.least_p
    assert shifts.interval(0.01) == (0, 0)
