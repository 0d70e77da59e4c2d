"""The Python that has imported torch already is to its caller what ``python`` is."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PYTHON
from tests.processes import await_ended

pytestmark = [
    pytest.mark.usefixtures("warm"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are started as ever elsewhere"),
]


def started(code: str, **environment: str) -> subprocess.Popen[str]:
    environ = {**os.environ, **environment}
    return subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('why')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(0)", 0),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("raise KeyboardInterrupt", -signal.SIGINT),
    ],
)
def test_it_ends_as_its_process_does(code: str, status: int) -> None:
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == status


def test_a_caller_that_is_killed_ends_no_others() -> None:
    call = {"arguments": ["-c", "pass"], "environment": {}, "folder": "/", "files": [], "is_leader": False}
    content = json.dumps(call).encode()
    for sent in (b"", b"\0", len(content).to_bytes(4, "big") + content[:9], len(content).to_bytes(4, "big") + content):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(Path(sys.executable).with_name("socket")))
            caller.sendall(sent)
    assert subprocess.run([sys.executable, "-c", "pass"], check=False).returncode == 0


def test_a_process_has_the_callers_place(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), sys.argv, os.environ['GIVEN'], sys.path[1], 'torch' in sys.modules)"
    ours = "; print([name for name in sys.modules if name.startswith('suites')], input())"
    given = {**os.environ, "GIVEN": "word", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code + ours, "a", "b"]
    told = subprocess.run(command, cwd=tmp_path, env=given, input="in\n", capture_output=True, text=True, check=True)
    assert told.stdout == f"{tmp_path} ['-c', 'a', 'b'] word {tmp_path} True\n[] in\n"


def test_a_run_in_it_says_what_it_would_say_of_an_interpreter(pytester: pytest.Pytester) -> None:
    """Plugins that pytest finds imported, and could no longer rewrite, it warns of."""
    pytester.makepyfile("def test_it(dsocr_config): assert dsocr_config.max_new_tokens == 0")
    options = ("-q", "-p", "no:cacheprovider")
    warm, cold = (
        subprocess.run([python, "-m", "pytest", *options], capture_output=True, text=True, check=False)
        for python in (sys.executable, PYTHON)
    )
    timeless = [re.sub(r"[\d.]+s|^time .*", "", done.stdout, flags=re.MULTILINE) for done in (warm, cold)]
    assert timeless[0] == timeless[1]
    assert "1 failed" in timeless[0]


@pytest.mark.parametrize(("flags", "found"), [([], ["", "given"]), (["-P"], ["given"]), (["-B", "-I"], [])])
def test_flags_say_where_modules_are_found(flags: list[str], found: list[str]) -> None:
    code = "import sys; print([path for path in sys.path if path in ('', 'given')], 'torch' in sys.modules)"
    command = [sys.executable, *flags, "-c", code]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": "given"}, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{found} True\n"
    cold, _ = started("import sys; print('torch' in sys.modules)", OMP_NUM_THREADS="3").communicate()
    assert cold == "False\n", "what is read at the start of an interpreter has a new one"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_process(number: signal.Signals) -> None:
    process = started("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout
    with process.stdout as told:
        behind = int(told.readline())
    process.send_signal(number)
    assert process.wait(60) == -number
    await_ended(behind)
