"""What verdicts are worth: on machines that are known, and as later comparisons quote it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_dsocr.perf.calibration import FILE_NAME, Calibration, calibrate, quoted, spread_of
from tests.perf.simulated import Noise, Times, all_at, normal, table

WINDOWS = 40


def windows(noise: Noise, count: int = WINDOWS) -> list[Times]:
    """Of two quantities."""
    rng = np.random.default_rng(1)
    return [table(rng, noise, 48, 2) for _ in range(count)]


def calibrated(drawn: list[Times], limit: float = 0.05) -> Calibration:
    return calibrate(drawn, all_at(limit, drawn[0]))


@pytest.fixture(scope="module")
def quiet() -> Calibration:
    return calibrated(windows(normal))


def test_a_quiet_machine_has_no_false_alarms_and_finds_what_is_above_the_limit(quiet: Calibration) -> None:
    assert (quiet.windows, quiet.false_alarms) == (WINDOWS, 0)
    assert quiet.alarms == quiet.ambiguous == {"stage0": 0, "stage1": 0}
    assert quiet.smallest_found == {"stage0": 0.1, "stage1": 0.1}
    assert quiet.false_alarm_interval == pytest.approx((0, 0.0876), abs=1e-4), "Wilson's"


def test_a_process_that_is_slower_by_itself_makes_nothing_easier_to_find() -> None:
    rng = np.random.default_rng(5)
    found = calibrated([table(rng, normal, 48, 2, 0.03) for _ in range(WINDOWS)])
    assert found.smallest_found == {"stage0": 0.15, "stage1": 0.1}, "0.07, were the slower process alone slowed"


def test_sides_that_are_not_the_same_are_false_alarms() -> None:
    rng = np.random.default_rng(3)
    found = calibrated([table(rng, normal, 48, 2, 0.15) for _ in range(5)] + windows(normal, count=5))
    assert (found.false_alarms, found.alarms) == (5, {"stage0": 5, "stage1": 0})
    faster = calibrated([table(rng, normal, 48, 2, -0.5) for _ in range(5)])
    assert faster.smallest_found["stage0"] is None, "an alarm in the other direction finds no slowdown"


def test_the_spread_is_what_the_processes_of_a_pair_differ_by() -> None:
    rng = np.random.default_rng(4)
    found = calibrated([table(rng, normal, 48, 2, by) for by in (0.03, -0.03)])
    assert found.spread["stage0"] == pytest.approx(0.03, abs=0.015)
    assert spread_of([([1.0], [1.1]), ([1.1], [1.1]), ([2.0], [1.8])]) == pytest.approx(0.1)
    assert spread_of([([1.0], [1.0]), ([1.1], [1.1])]) == 0, "a machine that got slower touches both alike"
    assert spread_of([([1.0], [1.0]), ([0.0], [1.0])]) == 0, "a window without times"


def test_without_one_and_with_a_damaged_one_nothing_is_quoted(tmp_path: Path) -> None:
    machine = {"cpu": "A CPU", "cores": 2}
    assert "none of this machine (a-cpu-2-cores)" in " ".join(quoted(machine, [tmp_path], ["page"]))
    path = tmp_path / "a-cpu-2-cores" / FILE_NAME
    path.parent.mkdir()
    path.write_bytes(b'{"windows": 3}\n')
    assert f"{path.name} is damaged: its end is missing" in " ".join(" ".join(quoted(machine, [tmp_path], [])).split())
