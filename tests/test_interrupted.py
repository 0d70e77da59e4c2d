"""A run of tests that is killed or interrupted leaves no process, whatever its tests have started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import await_, has_ended

STARTS = """
import subprocess, sys
from pytest_dsocr.pages.page_list import shipped
from tests.adapters.conftest import serving

def test_starts_a_server_and_a_run_whose_subject_hangs():
    [page] = (str(page) for page in shipped("dev-3") if page.stem == "figures_201")
    subject = "cli:sh -c 'touch begun; exec sleep 6000' {page}"
    compare = [sys.executable, "-m", "pytest_dsocr", "compare", page, "--subject", subject]
    with serving():
        subprocess.run([*compare, "--", "-k", "test_text", "-p", "no:cacheprovider"])
"""


def of(mark: str) -> list[int]:
    """Return the processes that have a variable of the environment, which each hands on to those that it starts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = folder.joinpath("environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is somebody else's
            continue
        found += [int(folder.name)] if mark.encode() in variables else []
    return [pid for pid in found if not has_ended(pid)]


@pytest.mark.dsocr_slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which ends a process with the one that started it")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_process(pytester: pytest.Pytester, number: signal.Signals) -> None:
    pytester.makepyfile(test_it=STARTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-s"]
    variable = f"STARTED_BY={pytester.path}"
    environment = {**os.environ, "STARTED_BY": str(pytester.path)}
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_(lambda: Path("begun").exists() or run.poll() is not None)
    assert len(of(variable)) >= 5, "the run, its server, the command, its pytest, and the subject"
    run.send_signal(number)
    run.wait()
    await_(lambda: not of(variable))
