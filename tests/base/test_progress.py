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


def test_a_bar_off_a_terminal_says_in_a_line_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log gets no bar, nor anything of a task that is soon done."""
    log = StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress.progress_bar(unit=" page", desc="reading", total=4) as bar:
        bar.update(3)
        progress_line = str(bar)
    assert re.match(r"reading 3/4  page, \d\d:\d\d$", progress_line)
    assert log.getvalue() == ""


def test_a_bench_off_a_terminal_says_how_far_it_is_every_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = Clock(100), list[str]()

    @contextmanager
    def reported(line: Callable[[float], str], _: object) -> Iterator[None]:
        yield
        progress.report(line, lines.append, clock.is_over, clock=lambda: clock.now_s)

    monkeypatch.setattr(sys, "stderr", StringIO())
    monkeypatch.setattr(progress, "reported", reported)
    with bench._watching() as watch:
        watch("timing", 3, 48)
    assert len(lines) == 3
    assert all("timing 3/48" in line for line in lines)
