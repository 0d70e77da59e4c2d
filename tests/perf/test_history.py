"""What was measured run by run: written by line, read whatever is damaged, and never mixed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.night.history import html
from pytest_dsocr.perf import history
from pytest_dsocr.perf.history import Line, Spread, lines_of
from pytest_dsocr.perf.rounds import Measured, Round
from pytest_dsocr.perf.statistics import Judgement, Pace

MACHINE = {"cpu": "A CPU", "cores": 2, "system": "Linux"}


def measured(decode_ms: float, **identity: Any) -> Measured:
    rounds = tuple(Round({"prefill": 10.0 + k, "decode": decode_ms + k}) for k in range(4))
    shown = {"name": "HEAD", "commit": "a" * 40, "subject": "session", "machine": MACHINE, **identity}
    return Measured(shown, {"decode.waits": 1}, rounds)


def line(day: int, decode_ms: float, **identity: Any) -> Line:
    verdict = Judgement("decode", Pace.SLOWER, 1.0, 2.0, 2.0, 1.9, 2.1, 0.05, 4, 4)
    return Line.of(
        measured(decode_ms, **{"commit": f"{day:040}", **identity}), [verdict], f"2026-11-{day:02}T00:00:00+00:00"
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "out" / history.FILE_NAME
    history.append(path, [line(2, 20.0)])
    history.append(path, [line(1, 10.0), line(3, 40.0)])
    return path


def test_what_is_written_is_read_in_the_order_of_dates(file: Path) -> None:
    [series], damaged = history.read(file)
    assert damaged == []
    assert [one.date[8:10] for one in series.lines] == ["01", "02", "03"]
    assert series.lines[1] == line(2, 20.0)
    assert series.lines[0].quantities["decode"] == Spread(11.5, 10.75, 12.25)
    assert series.lines[0].exact == {"decode.waits": 1}


def test_another_machine_or_setting_is_another_series(file: Path) -> None:
    history.append(file, [line(4, 1.0, machine={**MACHINE, "cores": 8}), line(5, 2.0, setup={"dtype": "bfloat16"})])
    found, _ = history.read(file)
    assert [len(series.lines) for series in found] == [3, 1, 1]
    assert [series.title for series in found][1:] == ["a-cpu-8-cores, session", "a-cpu-2-cores, session, bfloat16"]


def test_damaged_lines_are_told_and_the_others_read(file: Path) -> None:
    whole = file.read_bytes()
    one = whole.splitlines()[0].decode()
    for damage in (one[:50], one.replace('"format": 1', '"format": 2'), "[]", one.replace('"date"', '"day"'), '"x"'):
        file.write_bytes(whole + damage.encode() + b"\n")
        [series], [shown] = history.read(file)
        assert len(series.lines) == 3
        assert shown.startswith(f"{file}:4 ")
        assert shown.endswith("it is left out; the others count")


def test_a_line_that_was_torn_does_not_take_the_next_with_it(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])
    history.append(file, [line(9, 1.0)])
    [series], damaged = history.read(file)
    assert ([one.date[8:10] for one in series.lines], len(damaged)) == (["01", "02", "09"], 1)


def test_the_terminal_shows_the_last_run_and_the_first(file: Path) -> None:
    shown = "\n".join(lines_of(*history.read(file)))
    assert re.search(
        r"^  decode +41\.5 ms \(40\.8 ms to 42\.2 ms\) at 0{12} \(SLOWER\), 11\.5 ms .* first$", shown, re.M
    )


def test_the_page_runs_nothing_and_slower_runs_have_higher_bars(file: Path) -> None:
    history.append(file, [line(6, 50.0, name="<script>alert(1)</script>", commit="")])
    page = html([], *history.read(file))
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    bars = re.findall(r'<i class="(\w*)" style="height: ([\d.]+)px" title="([^"]+)">', page)
    heights = {title.partition(" ms")[0]: float(height) for verdict, height, title in bars if verdict == "SLOWER"}
    assert heights == pytest.approx({"11.5": 6.7, "21.5": 12.5, "41.5": 24.2, "51.5": 30.0}, abs=0.05)
    assert len(bars) == 4 + 4, "of prefill and decode"
    assert bars[4][2].startswith("11.5 ms (10.8 ms to 12.2 ms) at 000000000000 (SLOWER), 2026-11-01")
