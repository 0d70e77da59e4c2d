"""A real night on the CPU: killed in the middle, resumed, out of time, and with a wrong subject."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.pages.page_list import shipped
from tests.nightly.conftest import nightly, run_night, write_config

[PAGE] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
STAND_IN = Path(__file__).parents[1] / "reference" / "stand_in"
FAST = 'pytest = ["-k", "test_text or test_length"]'


def state(out: str = "nightly-out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "night.json").read_text(encoding="utf-8"))
    return found


def steps() -> dict[str, str]:
    return {entry["name"]: entry["step"] for entry in state()["entries"]}


def begun(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^(\S+) +begins", done.stdout, re.MULTILINE)


@pytest.mark.dsocr_slow
def test_a_night_that_was_killed_goes_on_where_it_was(home: Path) -> None:
    other = next(page for page in shipped("dev-20") if page.stem == "receipt_086")
    write_config([PAGE, other], "batch = 1", 'parts = ["doctor", "cache", "recorded"]', FAST)
    _kill_in("recorded-001")
    assert steps() == {"doctor": "done", "cache": "done", "recorded-001": "running", "recorded-002": "waiting"}
    assert state()["verdict"].startswith("not finished")
    assert "not finished" in Path("nightly-out/index.html").read_text(encoding="utf-8")
    kept = Path("nightly-out/cache/dsocr.json").read_bytes()

    resumed = run_night()
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert begun(resumed) == ["doctor", "recorded-001", "recorded-002"]
    assert Path("nightly-out/cache/dsocr.json").read_bytes() == kept
    assert (state()["verdict"], state()["status"]) == ("passes", 0)
    _check_page()

    assert begun(run_night()) == ["doctor"], "of a night that is whole, the machine alone is looked at again"
    (home / "code.txt").write_text("changed\n")
    assert begun(run_night("--minutes=0.0001")) == []
    assert {*steps().values()} == {"left out"}, "other code's results are not taken over"


def _kill_in(name: str) -> None:
    """Start a night, and kill its group while a job is at work."""
    process = subprocess.Popen(nightly(), start_new_session=True, stdout=subprocess.DEVNULL)
    result = Path("nightly-out", name, "dsocr.json")
    for _ in range(1200):
        if result.exists() and process.poll() is None:
            break
        time.sleep(0.1)
    assert json.loads(result.read_text(encoding="utf-8"))["status"] == "running"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("something of the night is still there")


def _check_page() -> None:
    """Every job is in the page, and every link leads to a file."""
    page = Path("nightly-out/index.html").read_text(encoding="utf-8")
    links = re.findall(r'href="([^"]+)"', page)
    assert all(Path("nightly-out", link).is_file() for link in links)
    for name in ("cache", "recorded-001", "recorded-002"):
        assert {f"{name}/{file}" for file in ("index.html", "dsocr.json", "junit.xml", "output.log")} <= {*links}
    assert "doctor/doctor.json" in links
    assert "as the doctor found it" in page
    assert "SHA-256 ed13a179a903" in page


def test_a_wrong_subject_is_1_with_its_case_in_the_page(home: Path) -> None:
    Path("mine.py").write_text("class Mine:\n    def read(self, page, **how):\n        return 'nonsense'\n")
    write_config([PAGE], 'subject = "mine:Mine"', 'parts = ["recorded", "cache"]', FAST, "minutes = 30")
    done = run_night()
    assert done.returncode == 1, done.stdout + done.stderr
    assert state()["verdict"].startswith("wrong: recorded wrong")
    assert "figures_201-gundam-markdown" in Path("nightly-out/index.html").read_text(encoding="utf-8")


def test_a_job_whose_time_is_over_is_ended_and_the_rest_left_out(home: Path) -> None:
    write_config([PAGE], 'parts = ["recorded", "cache"]', "minutes = 0.06")
    done = run_night()
    assert done.returncode == 10, done.stdout + done.stderr
    assert steps() == {"recorded": "ended", "cache": "left out"}
    assert [entry["why"] for entry in state()["entries"]] == ["its time was over", "the time is over"]


def test_a_machine_that_lacks_something_is_10(home: Path) -> None:
    write_config([PAGE], 'parts = ["doctor"]', 'checkpoint = "nowhere"')
    done = run_night()
    assert done.returncode == 10, done.stdout + done.stderr
    assert "nowhere" in Path("nightly-out/index.html").read_text(encoding="utf-8")


def test_a_night_that_is_ended_keeps_what_it_has(home: Path) -> None:
    write_config([PAGE], 'parts = ["recorded"]')
    process = subprocess.Popen(nightly(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    next(line for line in process.stdout if "begins" in line)
    time.sleep(1)
    second = run_night()
    assert second.returncode == 2
    assert "is at work on" in second.stderr
    process.terminate()
    _, said = process.communicate()
    assert (process.returncode, said) == (130, "dsocr: interrupted\n")
    assert [(entry["step"], entry["why"]) for entry in state()["entries"]] == [("ended", "interrupted")]


def test_the_live_part_runs_the_files_that_are_named(home: Path) -> None:
    """Here the stand-in's, in this environment."""
    lines = (f'vendor = "{STAND_IN}"', f'vendor_env = "{sys.prefix}"', 'pytest = ["-k", "test_text"]')
    write_config([PAGE], 'parts = ["live"]', *lines)
    done = run_night()
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(Path("nightly-out/live/dsocr.json").read_text(encoding="utf-8"))
    assert result["passes"]
    assert "reference       live" in Path("nightly-out/live/output.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["a disk that takes no more", "a file in the way"])
def test_results_that_cannot_be_written_are_10_and_not_a_wrong_model(home: Path, what: str) -> None:
    write_config([PAGE], 'parts = ["doctor"]')
    Path("nightly-out").mkdir()
    limit = "ulimit -f 2;" if what.startswith("a disk") else "touch nightly-out/doctor;"
    command = f"{limit} exec {shlex.join(nightly())}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 10, done.stdout + done.stderr
    assert re.match(r"dsocr: .*(cannot be written|File exists)", done.stderr)
