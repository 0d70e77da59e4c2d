"""A job's process is ended with all that it has started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_dsocr.night.jobs import TIME_IS_OVER, run_command
from tests.processes import await_, has_ended

CHILD = "import time, os; open('child', 'w').write(str(os.getpid())); time.sleep(60)"
STUBBORN = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(code: str, limit_s: float = 30, grace_s: float = 0.3) -> tuple[int, float, str]:
    return run_command([sys.executable, "-c", code], Path("log"), {"OF_NIGHT": "1"}, limit_s, grace_s)


def test_a_process_gives_its_status_and_its_output() -> None:
    status, _, why = run("import os, sys; print(os.environ['OF_NIGHT']); sys.stderr.write('told'); sys.exit(3)")
    assert (status, why) == (3, "")
    assert all(word in Path("log").read_text() for word in ("1\n", "told"))
    assert run("import os; os.kill(os.getpid(), 9)")[0] == 137


def test_one_that_ends_itself_when_asked_may_write_what_it_has() -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); time.sleep(60)"
    status, seconds, why = run(code, limit_s=1, grace_s=20)
    assert (status, why) == (7, TIME_IS_OVER)
    assert seconds < 15


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processes that another has started")
def test_one_that_does_not_end_is_killed_with_its_children() -> None:
    status, _, why = run(STUBBORN, limit_s=2)
    assert (status, why) == (137, TIME_IS_OVER)
    child = int(Path("child").read_text())
    await_(lambda: has_ended(child), within_s=20)  # less than it sleeps
