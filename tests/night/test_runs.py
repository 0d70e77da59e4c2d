"""Real nights on the CPU: killed and resumed, out of time, and with every part failing once."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.night.record import read
from pytest_dsocr.pages.page_list import shipped
from tests.night.conftest import nightly, run_night, write_config

PAGE, OTHER = (next(page for page in shipped("dev-20") if page.stem == name) for name in ("figures_201", "figures_009"))
TEXT = 'pytest = ["-k", "test_case and test_text"]'
WRONG, MACHINE, SLOWER = 1, 10, 11


def state() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("nightly-out/night.json").read_text(encoding="utf-8"))
    return found


def steps() -> dict[str, str]:
    return {entry["name"]: entry["step"] for entry in state()["entries"]}


def started(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^(\S+) +begins", done.stdout, re.MULTILINE)


def links(folder: str) -> set[str]:
    """What the page of a night links to, all of which is there."""
    found = {*re.findall(r'href="([^"]+)"', Path(folder, "index.html").read_text(encoding="utf-8"))}
    assert all(Path(folder, link).is_file() for link in found)
    return found


@pytest.mark.dsocr_slow
def test_a_night_that_was_killed_goes_on_where_it_was(home: Path) -> None:
    write_config([PAGE, OTHER], "batch = 1", 'parts = ["doctor", "recorded"]', TEXT)
    _kill_in("recorded-002")
    assert steps() == {"doctor": "done", "recorded-001": "done", "recorded-002": "running"}
    assert state()["verdict"].startswith("not finished")
    kept = Path("nightly-out/recorded-001/dsocr.json").read_bytes()

    Path("nightly-out/doctor").symlink_to(Path("nightly-out/doctor").rename("planted").absolute())
    resumed = run_night()
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert started(resumed) == ["doctor", "recorded-002"]
    assert Path("nightly-out/recorded-001/dsocr.json").read_bytes() == kept
    assert (state()["verdict"], state()["status"]) == ("passes", 0)
    files = ("index.html", "dsocr.json", "junit.xml", "output.log")
    assert {f"{name}/{file}" for name in ("recorded-001", "recorded-002") for file in files} <= links("nightly-out")
    assert "doctor/doctor.json" in links("nightly-out")
    assert started(run_night()) == ["doctor"], "of a night that is whole, the machine alone is looked at again"
    (home / "code.txt").write_text("changed\n")
    assert started(run_night("--minutes=0.0001")) == []
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


def test_a_job_whose_time_is_over_is_ended_and_the_rest_left_out(home: Path) -> None:
    write_config([PAGE], 'parts = ["recorded", "cache"]', "minutes = 0.06")
    done = run_night()
    assert done.returncode == MACHINE, done.stdout + done.stderr
    assert [(entry["step"], entry["why"]) for entry in state()["entries"]] == [
        ("ended", "its time was over"),
        ("left out", "the time is over"),
    ]


def test_a_night_that_is_ended_keeps_what_it_has_and_is_alone_in_its_folder(home: Path) -> None:
    write_config([PAGE], 'parts = ["recorded"]')
    process = subprocess.Popen(nightly(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    next(line for line in process.stdout if "begins" in line)
    second = run_night()
    assert second.returncode == 2
    assert "is at work on" in second.stderr
    process.terminate()
    _, said = process.communicate()
    assert (process.returncode, said) == (130, "dsocr: interrupted\n")
    assert [(entry["step"], entry["why"]) for entry in state()["entries"]] == [("ended", "interrupted")]


@pytest.fixture
def on_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def lost_gpu(_: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return ['device = "cuda"', 'parts = ["recorded"]', TEXT]


def wrong_stage(_: Path, __: pytest.MonkeyPatch) -> list[str]:
    subject, asked = "pytest_dsocr.explain.planted:pixels_levels_by_127", "test_case and (test_inputs or test_text)"
    return [f'subject = "{subject}"', 'parts = ["recorded"]', f'pytest = ["-k", "{asked}"]']


def needless_work(_: Path, __: pytest.MonkeyPatch) -> list[str]:
    """The page is encoded again in each step, which is counted."""
    subject = ['subject = "tests.perf.planted:vision_in_decode"', 'checkpoint = "synthetic:tiny"']
    allowed = 'may_miss = ["baseline", "timings", "recording", "snapshot"]'
    return [*subject, 'parts = ["perf"]', allowed, "max_new_tokens = 4", 'pytest = ["-k", "red_flag"]']


@pytest.mark.parametrize(
    ("plant", "status", "title", "said"),
    [
        (lost_gpu, MACHINE, "night%3A recorded", "--dsocr-device"),
        (wrong_stage, WRONG, "wrong%3A test_inputs", "images_ori"),
        (needless_work, SLOWER, "slower%3A test_no_red_flag", "vision"),
    ],
)
def test_a_planted_fault_is_reported(
    home: Path,
    on_github: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Path, pytest.MonkeyPatch], list[str]],
    status: int,
    title: str,
    said: str,
) -> None:
    write_config([PAGE], *plant(home, monkeypatch))
    done = run_night()
    assert done.returncode == status, done.stdout + done.stderr
    [first, *_] = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert first.startswith("::error ")
    assert f"title={title}" in first
    assert said in first
    word = {WRONG: "wrong", MACHINE: "machine", SLOWER: "slower"}[status]
    summary = on_github.read_text(encoding="utf-8")
    assert summary.startswith(f"## DeepSeek-OCR, a night: {word}\n")
    assert summary.rstrip("\n") == Path("nightly-out/summary.md").read_text(encoding="utf-8").rstrip("\n")
    assert "### To run again" in summary
    [kept], damaged = read(Path("nightly-history"))
    assert (kept.word, damaged) == (word, [])
    assert Path("nightly-history/index.html").is_file()
    if plant is wrong_stage:
        assert kept.cells["figures_201-gundam-markdown"]["tokenizer"] == "W"


def test_results_that_cannot_be_written_are_10_and_not_a_wrong_model(home: Path) -> None:
    write_config([PAGE], 'parts = ["doctor"]')
    for limit, said in (("touch nightly-history", ""), ("ulimit -f 2", "cannot be written")):
        done = subprocess.run(
            ["bash", "-c", f"{limit}; exec {shlex.join(nightly())}"], capture_output=True, text=True, check=False
        )
        assert done.returncode == MACHINE, done.stdout + done.stderr
        assert said in done.stderr
        assert said or "this night is not among the others: " in done.stdout
