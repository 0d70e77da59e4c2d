"""What was measured run by run: in series that are never mixed, as text and as bars."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_dsocr.night.history import html
from pytest_dsocr.perf.history import Line, Spread, in_series, lines_of
from pytest_dsocr.perf.run import PerfRun
from pytest_dsocr.perf.statistics import Judgement, Pace
from tests.perf.made import measured

SLOWER = Judgement("decode", Pace.SLOWER, 1.0, 2.0, 2.0, 1.9, 2.1, 0.05, 4, 4)


def line(day: int, decode_ms: float, **identity: Any) -> Line:
    """The line of a run of four rounds that is called slower."""
    times = {
        name: [ms + k for k in range(4)] for name, ms in (("first_token", 9.0), ("decode", decode_ms), ("page", 99))
    }
    of = measured(times, {"decode.waits": 1}, **{"commit": f"{day:040}", **identity})
    return Line.of_run(PerfRun(of, (SLOWER,)).to_json(), f"2026-11-{day:02}T00:00:00+00:00")


LINES = [line(2, 20.0), line(1, 10.0), line(3, 40.0)]


def test_a_series_is_in_the_order_of_dates_and_of_one_machine_and_setting() -> None:
    others = [line(4, 1.0, machine={"gpu": "NVIDIA B200"}), line(5, 2.0, setup={"dtype": "float16"})]
    first, *rest = in_series([*LINES, *others])
    assert [one.date[8:10] for one in first.lines] == ["01", "02", "03"]
    assert first.lines[0].quantities["decode"] == Spread(11.5, 10.75, 12.25)
    assert (first.lines[0].exact, first.lines[0].verdicts) == ({"decode.waits": 1}, {"decode": "SLOWER"})
    assert [[one.date[8:10] for one in series.lines] for series in rest] == [["04"], ["05"]]
    titles = ["nvidia-b200, session, mini, bfloat16, eager", "nvidia-h200, session, mini, float16, eager"]
    assert [series.title.partition(", form")[0] for series in rest] == titles


def test_the_terminal_shows_the_last_run_and_the_first() -> None:
    shown = "\n".join(lines_of(in_series(LINES)))
    decode = r"^  decode +41\.5 ms \(40\.8 ms to 42\.2 ms\) at 0{12} \(SLOWER\), 11\.5 ms .* first$"
    assert re.search(decode, shown, re.MULTILINE)


def test_the_page_runs_nothing_and_slower_runs_have_higher_bars() -> None:
    page = html([], in_series([*LINES, line(6, 50.0, name="<script>alert(1)</script>", commit="")]), [])
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    bars = re.findall(r'<i class="SLOWER" style="height: ([\d.]+)px" title="([^"]+)">', page)
    assert [float(height) for height, _ in bars] == pytest.approx([6.7, 12.5, 24.2, 30.0], abs=0.05)
    assert bars[0][1].startswith("11.5 ms (10.8 ms to 12.2 ms) at 000000000000 (SLOWER), 2026-11-01")
