"""What becomes of a worker that fails, and what the user is told: no verdict, no hang, and nothing left behind.

Here the worker is played by scripts that do what the true one would never do; ``test_faults_live.py`` has the true one.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.reference import process
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from suites.contract.pages import write_page
from tests.reference.conftest import worker_folders
from tests.reference.played import CHECKPOINT, LOADED, Clock, await_ended, interpreter, played

LIMIT_S = 30.0
HANG = "gave no sign of life for 30 s and was killed; raise the time limit if it was only slow"
GARBAGE = "; find out what writes to its pipe"
DIED = "; look for the cause in its stderr"
MEMORY = "; if memory ran out, give it more or a smaller case"
BROKEN = r"gave an answer that does not hold together \(%s.*\); see that .* has room"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return make_case(write_page("tiny", tmp_path), "free", "tiny", 4)


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The client's; ``test_faults_live.py`` has a hang by the true one."""
    monkeypatch.setattr(process, "time", clock := Clock(tmp_path))
    return clock


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 1.0)
    monkeypatch.setattr(process, "POLL_S", 0.05)
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 1 << 20)


@pytest.fixture(autouse=True)
def nothing_is_left(temporary: Path) -> Iterator[None]:
    before = worker_folders(temporary)
    yield
    assert worker_folders(temporary) == before


def message_of(request: Callable[[], object]) -> str:
    with pytest.raises(ReferenceFaultError) as caught:
        request()
    return str(caught.value)


def expected(request: str, event: str) -> str:
    """Give a pattern for what is said of an ``event`` that befalls two workers, one after the other."""
    what, advice = event.rsplit("; ", 1)
    events = f"it {what}, and the one started in its place {what}; {advice}"
    return f"the vendor's worker could not answer {re.escape(request)}: {events}"


AFTER_LOADING = {
    "ends": ("sys.exit(7)", "ended with exit status 7" + DIED),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL" + MEMORY),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV" + DIED),
    "is killed in mid-answer": (
        """os.write(1, b'{"type": "Response", "id": 2, "res'); os.kill(os.getpid(), signal.SIGKILL)""",
        "was killed by SIGKILL in the middle of an answer" + MEMORY,
    ),
    "ends but for a child that holds its pipe": (
        "note(subprocess.Popen(['sleep', '6000']).pid); sys.exit(7)",
        "ended with exit status 7" + DIED,
    ),
    "ends and takes its folder along": (
        "import shutil; shutil.rmtree(FOLDER); sys.exit(7)",
        "ended with exit status 7" + DIED,
    ),
    "closes its pipe": ("os.close(1); time.sleep(6000)", "closed its pipe and ran on" + DIED),
    "hangs": ("hang()", HANG),
    "dribbles": ("stall()\nwhile True: os.write(1, b'x'); time.sleep(0.01)", HANG),
    "prints": ("print('Loading: 50%', flush=True)", "wrote what is no message, 'Loading: 50%'" + GARBAGE),
    "prints much": ("print('x' * 500, flush=True)", f"wrote what is no message, '{'x' * 80}'" + GARBAGE),
    "prints bytes": (r"os.write(1, b'\xff\x1b\n')", r"wrote what is no message, '\ufffd\\x1b'" + GARBAGE),
    "prints without an end": (
        "os.write(1, b'x' * (1 << 22))",
        f"wrote what is no message, '{'x' * 80}'" + GARBAGE,
    ),
    "asks back": (
        "say('Request', id=id, method='observe', params={})",
        r"""wrote what is no message, '\{"type": "Request", .*'""" + GARBAGE,
    ),
    "answers another": ("answer(id + 5, {})", r"answered request \d+ in place of \d+" + GARBAGE),
    "tells of another": (
        "say('Progress', id=id - 1, what='token', done=1, total=None)",
        r"answered request \d+ in place of \d+" + GARBAGE,
    ),
    "forgets its tensors": ("answer(id, {}, {'a': 'float32 [1]'})", BROKEN % "FileNotFoundError"),
    "cuts its tensors": (
        "os.truncate(store(id, 1.0, 2.0), 60); answer(id, {}, {'a': 'float32 [2]'})",
        BROKEN % "ValueError.*its tensors cannot be read",
    ),
    "gives other tensors": (
        "store(id, 1.0, 2.0); answer(id, {}, {'a': 'float32 [1]'})",
        BROKEN % "ValueError.*its tensors are not those that it names",
    ),
    "gives more tensors": (
        "store(id, 1.0, 2.0); answer(id, {}, {'a': 'float32 [2]', 'b': 'float32 [2]'})",
        BROKEN % "ValueError.*its tensors are not those that it names",
    ),
    "gives another kind of result": ("answer(id, 17)", BROKEN % "TypeError"),
    "gives another kind of tensors": ("answer(id, {}, ['a'])", BROKEN % "(Attribute|Type|FileNotFound)Error"),
}


@pytest.mark.parametrize(("scene", "event"), AFTER_LOADING.values(), ids=AFTER_LOADING)
def test_a_worker_that_is_lost_twice(scene: str, event: str, case: Case, tmp_path: Path) -> None:
    with played(tmp_path, LOADED + scene + "\ntime.sleep(6000)", time_limit_s=LIMIT_S) as worker:
        said = message_of(lambda: worker.reference.flops(case))
        assert re.fullmatch(expected("flops(tiny-tiny-free)", event), said)
        assert worker.reference.worker_pid is None
        assert len(set(worker.pids)) == len(worker.pids) == (4 if "note(" in scene else 2)
        await_ended(*worker.pids)


WHILE_LOADING = {
    "ends": ("sys.exit(7)", "ended with exit status 7" + DIED),
    "hangs": ("hang()", HANG),
    "says nothing of its making": ("answer(hear()['id'], {}, provenance={})", BROKEN % "KeyError.*checkpoint"),
}


@pytest.mark.parametrize(("scene", "event"), WHILE_LOADING.values(), ids=WHILE_LOADING)
def test_a_worker_that_cannot_load_is_not_tried_again(scene: str, event: str, case: Case, tmp_path: Path) -> None:
    with played(tmp_path, scene, time_limit_s=LIMIT_S) as worker:
        for request, name in ((worker.reference.start, CHECKPOINT), (lambda: worker.reference.flops(case), case.id)):
            said = message_of(request)
            method = "load" if name == CHECKPOINT else "flops"
            assert re.fullmatch(
                expected(f"{method}({name})", event).replace(": it ", f": loading {CHECKPOINT}, it "), said
            )
        assert len(worker.pids) == 2


def test_an_error_in_loading_is_told_of_every_request(case: Case, tmp_path: Path) -> None:
    scene = "say('Failure', id=hear()['id'], kind='MemoryError', message='x', traceback='where')\nhear()"
    with played(tmp_path, scene) as worker:
        for _ in range(2):
            said = message_of(lambda: worker.reference.flops(case))
            assert f"flops(tiny-tiny-free): loading {CHECKPOINT}, it answered MemoryError: x; give it a smaller" in said
        assert len(worker.pids) == 1


def test_both_faults_are_named(case: Case, tmp_path: Path) -> None:
    scene = LOADED + "print('?', flush=True) if id == 2 else sys.exit(7)\ntime.sleep(6000)"
    with played(tmp_path, scene) as worker:
        said = message_of(lambda: worker.reference.flops(case))
    assert "it wrote what is no message, '?', and the one started in its place ended with exit status 7; look" in said


def test_the_second_worker_may_fail_in_loading(case: Case, tmp_path: Path) -> None:
    scene = "request = hear(); sys.exit(7) if request['id'] > 1 else answer(1, {})\nhear(); sys.exit(8)"
    with played(tmp_path, scene) as worker:
        said = message_of(lambda: worker.reference.flops(case))
    second = f"loading {CHECKPOINT}, the one started in its place ended with exit status 7; look"
    assert f"it ended with exit status 8, and {second}" in said


def test_a_second_worker_that_does_better(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")  # whatever else in this process has switched warnings off
    scene = LOADED + "answer(id, {'sam': 5}) if id > 2 else sys.exit(7)\nhear()"
    with played(tmp_path, scene) as worker:
        assert worker.reference.flops(case) == {"sam": 5}
        assert worker.reference.worker_pid == worker.pids[1]
        assert len(worker.pids) == 2
    [warning] = caplog.messages
    assert "could not answer flops(tiny-tiny-free): it ended with exit status 7; look" in warning
    assert warning.endswith("Another is started in its place.")


def test_an_error_that_is_answered_is_not_repeated(case: Case, tmp_path: Path) -> None:
    scene = LOADED + "say('Failure', id=id, kind='KeyError', message='x', traceback='line 1\\nline 2'); hear()"
    with played(tmp_path, scene) as worker:
        said = message_of(lambda: worker.reference.flops(case))
        assert [worker.reference.worker_pid] == worker.pids
    assert said == (
        "the vendor's worker could not answer flops(tiny-tiny-free): it answered KeyError: x; "
        "look for the cause in its traceback\nThe end of its stderr:\n  | line 1\n  | line 2"
    )


def test_the_end_of_stderr_is_told(case: Case, tmp_path: Path) -> None:
    scene = (
        LOADED
        + r"""
for n in range(5000):
    sys.stderr.write("complaint %d\n\n" % n)
sys.stderr.flush()
os.write(2, b"50%\r100%\r\xff \x1b[31mred\n")
sys.exit(7)
"""
    )
    with played(tmp_path, scene) as worker:
        said = message_of(lambda: worker.reference.flops(case)).splitlines()
    assert said[1:3] == ["The end of its stderr:", "  | complaint 4983"]
    assert said[-3:] == ["  | 50%", "  | 100%", "  | \ufffd  [31mred"]
    assert len(said) == 22


def test_signs_of_progress_put_the_limit_off(case: Case, tmp_path: Path, clock: Clock) -> None:
    scene = (
        LOADED
        + """
for n in range(8):
    time.sleep(0.1)
    say("Progress", id=id, what="token", done=n, total=None)
answer(id, {"sam": 5})
hear()
"""
    )
    seen: list[tuple[str, int, int | None]] = []

    def on_progress(*sign: Any) -> None:
        seen.append(sign)
        clock.flown_s += LIMIT_S / 2

    with played(tmp_path, scene, time_limit_s=LIMIT_S, on_progress=on_progress) as worker:
        assert worker.reference.flops(case) == {"sam": 5}
        assert len(worker.pids) == 1
    assert seen == [("token", n, None) for n in range(8)]


def test_a_request_of_any_length_is_sent(case: Case, tmp_path: Path) -> None:
    long = Case(case.page, "x" * 1_000_000, case.preset)
    with played(tmp_path, LOADED + "answer(id, {'sam': len(request['params']['case']['prompt'])}); hear()") as worker:
        assert worker.reference.flops(long) == {"sam": 1_000_000}


def test_a_worker_that_does_not_listen(case: Case, tmp_path: Path) -> None:
    long = Case(case.page, "x" * 1_000_000, case.preset)
    scene = "answer(hear()['id'], {})\nhang()"
    with played(tmp_path, scene, time_limit_s=LIMIT_S) as worker:
        said = message_of(lambda: worker.reference.flops(long))
    assert HANG in said


def test_an_interrupted_request_leaves_no_worker(case: Case, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    scene = (
        LOADED
        + """
if id > 2:
    answer(id, {})
    hear()
say("Progress", id=id, what="token", done=1, total=None)
time.sleep(6000)
"""
    )
    with played(tmp_path, scene, on_progress=interrupt) as worker:
        with pytest.raises(KeyboardInterrupt):
            worker.reference.flops(case)
        assert worker.reference.worker_pid is None
        await_ended(*worker.pids)
        assert len(worker.pids) == 1
        assert worker.reference.flops(case) == {}


@pytest.mark.parametrize("deafness", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_closing_does_not_wait_for_ever(
    deafness: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    scene = LOADED + f"{deafness}\nnote(subprocess.Popen(['sleep', '6000']).pid)\nanswer(id, {{}})\ntime.sleep(6000)"
    with played(tmp_path, scene) as worker:
        worker.reference.flops(case)
        worker.reference.close()
        assert len(worker.pids) == 2
        worker.reference.close()


def test_a_forgotten_reference_ends_its_worker(case: Case, tmp_path: Path) -> None:
    reference = LiveReference(tmp_path, CHECKPOINT, python=interpreter(tmp_path, LOADED + "answer(id, {})\nhear()"))
    reference.flops(case)
    pid = reference.worker_pid
    assert pid
    del reference
    gc.collect()
    await_ended(pid)


def test_the_end_of_the_program_ends_its_worker(tmp_path: Path, temporary: Path) -> None:
    python = interpreter(tmp_path, LOADED)
    program = f"""
import pathlib, tempfile
from pytest_dsocr.reference.live import LiveReference
tempfile.tempdir = {str(temporary)!r}
reference = LiveReference(pathlib.Path("."), "synthetic:tiny", python=pathlib.Path({str(python)!r}))
reference.start()
print(reference.worker_pid)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    await_ended(int(done.stdout))


def test_what_a_worker_is_given(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What chooses devices and threads, no network, and nothing that is meant for the caller's interpreter."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with played(tmp_path, LOADED + "answer(id, {'FOLDER': FOLDER, **os.environ})\nhear()") as worker:
        given: Mapping[str, object] = worker.reference.flops(case)
    assert given["CUDA_VISIBLE_DEVICES"] == "3"
    assert given["OMP_NUM_THREADS"] == "1"
    assert given["HF_HUB_OFFLINE"] == given["TRANSFORMERS_OFFLINE"] == "1"
    assert given["TMPDIR"] == f"{given['FOLDER']}/tmp"
    assert not [name for name in given if name.startswith("PYTHON")]


def test_no_interpreter(case: Case, tmp_path: Path) -> None:
    absent = tmp_path / "bin" / "python"
    with LiveReference(tmp_path, CHECKPOINT, python=absent) as reference:
        said = message_of(lambda: reference.observe(case))
    assert said == (
        f"the vendor's worker could not answer observe(tiny-tiny-free): loading {CHECKPOINT}, it could not be started "
        f"as {absent} (No such file or directory); name the environment that `dsocr vendor setup` made"
    )
