"""The faults that befall a true worker, planted in the stand-in; and a kill from outside, also of the vendor's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.reference import process
from pytest_dsocr.reference.environment import interpreter
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN, Home, worker_folders
from tests.reference.played import CHECKPOINT, await_, await_ended

TOKENS = 4
REQUEST = "observe(tiny-tiny-free)"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("tiny", tmp_path_factory.mktemp("pages")), "free", "tiny", TOKENS)


@dataclass
class Struck:
    """A reference to a copy of the stand-in, in which faults can be planted while it runs."""

    reference: LiveReference
    folder: Path
    healthy: Observation

    def plant(self, fault: str, at: str = "token", **plan: Any) -> None:
        (self.folder / "planted.log").unlink(missing_ok=True)
        (self.folder / "planted.json").write_text(json.dumps({"fault": fault, "at": at, **plan}))

    @property
    def pids(self) -> list[int]:
        """Of the workers that were struck."""
        return [int(line) for line in (self.folder / "planted.log").read_text().split()]


def copy_stand_in(folder: Path) -> Path:
    return Path(shutil.copytree(STAND_IN, folder / "vendor", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory, case: Case, warm_python: Path) -> Iterator[Struck]:
    folder = copy_stand_in(tmp_path_factory.mktemp("struck"))
    with LiveReference(folder, CHECKPOINT, python=warm_python, time_limit_s=60) as reference:
        yield Struck(reference, folder, reference.observe(case))


@pytest.fixture(autouse=True)
def nothing_is_left(temporary: Path) -> Iterator[None]:
    """The shared reference's worker may have a folder, and no other."""
    yield
    assert len(worker_folders(temporary)) <= 1


def message_of(request: Callable[[], object]) -> str:
    with pytest.raises(ReferenceFaultError) as caught:
        request()
    return str(caught.value)


def same(one: Observation, other: Observation) -> bool:
    return one.steps == other.steps and one.seams["prefill"].sha256 == other.seams["prefill"].sha256


@pytest.mark.parametrize("noise", ["chatter", "ask for consent"])
def test_noise_is_none(struck: Struck, case: Case, noise: str) -> None:
    struck.plant(noise)
    assert not (struck.folder / "__pycache__").exists()
    pid = struck.reference.worker_pid
    assert same(struck.reference.observe(case), struck.healthy)
    assert struck.pids == [pid] == [struck.reference.worker_pid]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("memory", "answered MemoryError: tried to allocate 20.00 GiB; give it a smaller preset or checkpoint"),
        ("cuda memory", "answered OutOfMemoryError: tried to allocate 20.00 GiB; give it a smaller preset or"),
        ("exit", "answered SystemExit: 3; look for the cause in its traceback\n"),
        ("import error", "answered ModuleNotFoundError: No module named 'a_package_that_is_not_there'; make its env"),
    ],
)
def test_an_exception_is_answered(struck: Struck, case: Case, fault: str, said: str) -> None:
    struck.plant(fault, turn=2)
    pid = struck.reference.worker_pid
    message = message_of(lambda: struck.reference.observe(case))
    assert message.startswith(f"the vendor's worker could not answer {REQUEST}: it {said}")
    assert "The end of its stderr:" in message
    assert "planted.py" in message
    assert struck.pids == [pid]
    (struck.folder / "planted.json").unlink()
    assert same(struck.reference.observe(case), struck.healthy)
    assert struck.reference.worker_pid == pid


LOST = {  # test_faults.py has more; here is what the worker itself does against what is written into its pipe
    "abort": ("was killed by SIGABRT; look", "planted.py"),
    "hang": ("gave no sign of life for 2 s and was killed; raise", ""),
    "garbage": (r"wrote what is no message, '\x1b[2KLoading model... 97%'; find", "  | noise from C\n"),
}


@pytest.mark.parametrize("fault", LOST)
def test_a_lost_worker_is_replaced_once(
    struck: Struck, case: Case, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    event, trace = LOST[fault]
    struck.plant(fault, turn=2, once=True)
    first = struck.reference.worker_pid
    monkeypatch.setattr(process, "GRACE_S", 2.0)
    if fault == "hang":
        shorten_limit(struck.reference, monkeypatch)
    assert same(struck.reference.observe(case), struck.healthy)
    assert struck.pids == [first]
    assert struck.reference.worker_pid not in (None, first)
    [warning] = caplog.messages
    assert f"{REQUEST}: it {event}" in warning
    assert trace in warning


def shorten_limit(reference: LiveReference, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the worker that runs, and not for the next one's start."""
    worker = reference._client._worker
    monkeypatch.setattr(worker, "time_limit_s", 2)


def test_kill_9_in_mid_request(home: Home, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """From outside, at the second token of the first run; the second run is told of nothing."""
    caplog.set_level("WARNING")
    pids: list[int] = []

    def kill(what: str, done: int, total: int | None) -> None:
        if (what, done) == ("token", 2):
            assert reference.worker_pid
            pids.append(reference.worker_pid)
            if len(pids) == 1:
                os.kill(pids[0], signal.SIGKILL)

    with LiveReference(home.folder, CHECKPOINT, python=home.python, on_progress=kill) as reference:
        observed = reference.observe(case)
        assert len(observed.steps) == TOKENS
        assert same(observed, reference.observe(case))
        assert len(set(pids)) == 2
        assert pids[1] == pids[2] == reference.worker_pid
    [warning] = caplog.messages
    assert f"{REQUEST}: it was killed by SIGKILL; if memory ran out, give it more or a smaller case" in warning
    await_ended(*pids)


@pytest.mark.usefixtures("warm")
def test_kill_9_of_the_client_ends_the_worker(tmp_path: Path, case: Case, temporary: Path) -> None:
    """In mid-request, where the worker would not look at its stdin for a long time."""
    folder = copy_stand_in(tmp_path)
    (folder / "planted.json").write_text('{"fault": "hang", "at": "token"}')
    program = f"""
import sys, tempfile
from pathlib import Path
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.reference.live import LiveReference
tempfile.tempdir = {str(temporary)!r}
reference = LiveReference(Path({str(folder)!r}), {CHECKPOINT!r}, python=Path(sys.executable))
reference.observe(make_case({str(case.page)!r}, "free", "tiny"))
"""
    before = worker_folders(temporary)
    with subprocess.Popen([sys.executable, "-c", program]) as client:
        log = folder / "planted.log"
        await_(lambda: log.exists() and log.read_text().endswith("\n"))
        assert worker_folders(temporary) > before
        client.kill()
    await_ended(int(log.read_text()))
    await_(lambda: worker_folders(temporary) == before)


def test_an_environment_without_packages(tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller has, on its path or in its folder, is not to be found by the worker."""
    venv.create(tmp_path / "bare")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the worker imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    with LiveReference(STAND_IN, CHECKPOINT, python=interpreter(tmp_path / "bare")) as reference:
        message = message_of(lambda: reference.observe(case))
    assert f"loading {CHECKPOINT}, it answered ModuleNotFoundError: No module named " in message
    assert f"; make its environment with `dsocr vendor setup {STAND_IN}` ({tmp_path}/bare/bin/python has py" in message


def test_an_environment_of_the_wrong_versions(tmp_path: Path, case: Case) -> None:
    """Told before anything of the vendor's is imported; code that needs no transformers needs none of a version."""
    folder = copy_stand_in(tmp_path)
    path = folder / "conversation.py"
    path.write_text(path.read_text() + "\nimport transformers\n")
    (folder / "planted.json").write_text('{"fault": "kill", "at": "import"}')
    venv.create(tmp_path / "later")
    [packages] = (tmp_path / "later").glob("lib/python*/site-packages")
    (packages / "transformers-5.23.0.dist-info").mkdir()
    (packages / "transformers-5.23.0.dist-info" / "METADATA").write_text("Name: transformers\nVersion: 5.23.0\n")
    with LiveReference(folder, CHECKPOINT, python=interpreter(tmp_path / "later")) as reference:
        message = message_of(lambda: reference.observe(case))
    assert f"it refused: the code in {folder} needs transformers 4.46, and the worker's environment has 5.2" in message
    assert message.endswith(f"; make one with `dsocr vendor setup {folder}`")


def test_a_folder_without_the_vendors_files(tmp_path: Path, case: Case) -> None:
    with LiveReference(tmp_path, CHECKPOINT, python=Path(sys.executable)) as reference:
        message = message_of(lambda: reference.observe(case))
    assert f"it refused: {tmp_path} lacks modeling_deepseekocr.py, modeling_deepseekv2.py, deepencoder.py" in message
