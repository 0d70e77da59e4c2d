"""``dsocr bench --calibrate`` by real processes, and what later comparisons say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.perf.baseline import machine_name
from pytest_dsocr.perf.calibrating import FILE_NAME, quoted
from pytest_dsocr.perf.calibration import CALIBRATIONS
from pytest_dsocr.perf.rounds import Measured
from tests.perf.test_bench import QUICK, bench

SLEEPING = "subject:tests.perf.sleeping:Sleeping"
MACHINE = {"cpu": "A CPU", "cores": 2}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: None) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_side_is_judged_against_itself_and_later_verdicts_quote_it(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--judgements=3", "--pairs=20", "--processes=2", "--slower=page=0.4")
    assert main(["bench", "--calibrate", SLEEPING, *few, *QUICK, "--out=times.json"]) == 0
    told = capsys.readouterr().out
    [path] = Path("golden/baselines").glob(f"*/{FILE_NAME}")
    assert told.splitlines()[-2:] == [f"written         {path}", "written         times.json"]
    kept = json.loads(Path("times.json").read_text())
    of = [Measured.from_json(two[side]) for two in kept for side in "ab"]
    assert [len(one.wall_ms("page")) for one in of] == [10] * 4, "both sides of two pairs of processes"
    one = CALIBRATIONS.read(path)
    assert (one.windows, one.pairs, one.false_alarms, [*one.spread]) == (3, 20, 0, ["page"])
    assert one.of["subject"] == SLEEPING.removeprefix("subject:")
    assert path.parent.name == machine_name(one.of["machine"])
    assert "in 0 of 3 tables" in told
    assert bench("Sleeping", "Sleeping", "--slower=page=0.4") == 0
    told = capsys.readouterr().out
    assert "calibration     0 of 3 tables of this machine against itself had a false alarm; found" in told
    assert f"made on {one.made} with {path.parent.name}" in told


def test_none_and_a_damaged_one_are_told(tmp_path: Path) -> None:
    [line, *_] = quoted(MACHINE, [tmp_path], ["page"])
    assert line.split(maxsplit=1)[1] == "none of this machine (a-cpu-2-cores); to make one: dsocr bench --calibrate A"
    path = tmp_path / "a-cpu-2-cores" / FILE_NAME
    path.parent.mkdir()
    path.write_bytes(b'{"windows": 3}\n')
    told = " ".join(" ".join(quoted(MACHINE, [tmp_path], ["page"])).split())
    assert f"{path.name} is damaged: its end is missing; make it anew" in told


def test_judgements_that_cannot_be_spread_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--calibrate", SLEEPING, "--pairs=3", "--processes=4"]) == 3
    assert "--pairs=3 cannot be spread over --processes=4" in capsys.readouterr().err
