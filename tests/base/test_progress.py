"""Progress off a terminal: a line at least every 30 s, and none once the work is done."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

import pytest

from pytest_dsocr.base import progress
from pytest_dsocr.cli import bench


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self, work_s: float) -> None:
        self.now_s, self.work_s = 0.0, work_s

    def is_over(self, seconds: float) -> bool:
        self.now_s += min(seconds, self.work_s - self.now_s)
        return self.now_s >= self.work_s


@pytest.mark.parametrize(
    ("first_s", "work_s", "told"), [(5, 100, [5, 35, 65, 95]), (30, 90, [30, 60]), (30, 29, []), (30, 31, [30])]
)
def test_a_line_comes_every_thirty_seconds(first_s: float, work_s: float, told: list[float]) -> None:
    clock, lines = Clock(work_s), list[str]()
    progress.report(str, lines.append, clock.is_over, first_s, lambda: clock.now_s)
    assert [float(line) for line in lines] == told


def test_a_bench_off_a_terminal_says_how_far_it_is_every_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log gets lines and no bar."""
    clock, lines, log = Clock(100), list[str](), StringIO()

    @contextmanager
    def reported(line: Callable[[float], str], _: object) -> Iterator[None]:
        yield
        progress.report(line, lines.append, clock.is_over, clock=lambda: clock.now_s)

    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "reported", reported)
    with bench._watching() as (watch, _):
        watch("timing", 3, 48)
    assert len(lines) == 3
    assert all(re.match(r"dsocr: timing 3/48 pair, \d\d:\d\d$", line) for line in lines)
    assert log.getvalue() == ""


def test_a_forecast_is_a_line_of_its_own_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with bench._watching() as (_, tell):
        tell("time for 3 pairs\x1b[2J")
    assert capsys.readouterr().err == "dsocr: time for 3 pairs\\x1b[2J\n"
