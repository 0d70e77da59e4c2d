"""Imports what takes long, and forks a process for each call: ``server.py SOCKET PYTHON``; ends with its stdin.

A script of its own. This project and the plugins of pytest are imported within a run of pytest, which rewrites their
assertions, and so that a run in a process has nothing to say of them.
"""

import atexit
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from typing import Any

LONG = (
    *("torch.fx.experimental.symbolic_shapes", "safetensors.torch", "tokenizers", "scipy.optimize", "jinja2"),
    *("transformers.models.auto.tokenization_auto", "transformers.tokenization_utils_fast", "rapidfuzz"),
    *("pytest_dsocr.cases.run", "pytest_dsocr.plugin.fixtures", "pytest_dsocr.report.result", "pytest_dsocr.cli.main"),
)
READ_AT_START = ("PYTHON", "OMP_", "MKL_", "TORCH_", "LD_")
"""How variables begin that an interpreter or a library reads as it starts: another value needs another interpreter."""
FLAGS = (["-u"], ["-P"], ["-B"], ["-I"], ["-X", "faulthandler"])
"""What may stand in front of ``-m`` or ``-c``."""
MOVED, FILES = 1000, 64

Call = Mapping[str, Any]


class Importing:
    """A plugin that imports this project where pytest would collect tests."""

    def pytest_collection(self) -> bool:
        for name in LONG:
            importlib.import_module(name)
        return True


def import_in_a_run() -> None:
    """Import what a run has imported at its end; what a forked process finds in a buffer it would print."""
    import pytest

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        status = pytest.main(["-q", "-c", os.devnull, "--rootdir", folder, folder], plugins=[Importing()])
    if status != pytest.ExitCode.NO_TESTS_COLLECTED:
        sys.exit(status)


def serve(listener: socket.socket) -> Call | None:
    """Answer until stdin ends; return in each process that is asked for, with its call, and here with nothing."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no watcher is waited for
    sources: list[Any] = [listener, 0]
    while listener in select.select(sources, [], [])[0]:
        client, _ = listener.accept()
        if not os.fork():
            listener.close()
            return watch(client)
        client.close()
    return None


def watch(client: socket.socket) -> Call:
    """Fork a process for a client, and tell it how that ended; end it where the client, or the server's stdin, is gone.

    Returns in the process that is asked for alone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with client, suppress(OSError), client.makefile("rb") as sent:
        head, files, *_ = socket.recv_fds(client, 4, FILES)
        content = sent.read(int.from_bytes(head, "big"))
        if not head or len(content) < int.from_bytes(head, "big"):  # it was killed before it had asked
            os._exit(0)
        call: Call = json.loads(content)
        process = os.fork()
        if not process:
            client.detach()  # its number may be that of a file of the caller's
            take(files, call["files"])
            return call
        for file in files:
            os.close(file)
        client.sendall(process.to_bytes(4, "big"))
        ended = os.pidfd_open(process)
        sources: list[Any] = [ended, client, 0]
        if ended not in select.select(sources, [], [])[0]:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL) if call["is_leader"] else os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        client.sendall(status.to_bytes(4, "big", signed=True))
    os._exit(0)


def take(files: list[int], places: list[int]) -> None:
    """Put files where the caller has them, and close all others."""
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, MOVED) for file in files]
    os.closerange(0, MOVED)
    for file, place in zip(moved, places, strict=True):
        os.dup2(file, place)
        os.close(file)


def run(call: Call, python: str) -> None:
    """Be what ``python`` would be with these arguments."""
    os.chdir(call["folder"])
    if call["is_leader"]:
        os.setsid()
    flags, arguments = parted([*call["arguments"]])
    is_isolated = "-I" in flags
    [how, what, *rest] = arguments if arguments[:1] in (["-m"], ["-c"]) else ["", ""]
    if not how or read_at_start(os.environ, is_isolated) != read_at_start(call["environment"], is_isolated):
        os.execve(sys.executable, [sys.executable, *flags, *arguments], call["environment"])
    os.environ.clear()
    os.environ.update(call["environment"])
    tempfile.tempdir = None  # it was found by this process's own environment
    sys.executable = python
    sys.dont_write_bytecode |= "-B" in flags
    if "faulthandler" in flags:
        faulthandler.enable()
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and not is_isolated]
    first = [] if is_isolated or "-P" in flags else ["" if how == "-c" else call["folder"]]
    sys.path[:] = [*first, *named, *PATH]
    importlib.invalidate_caches()
    sys.argv[:] = [how, *rest]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(what, vars(main))


def status_of(call: Call, python: str) -> int:
    """Run it; give the exit status that the interpreter would give."""
    try:
        run(call, python)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def end(status: int) -> None:
    """End as an interpreter does, but for taking down everything that it has imported, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the flags in front, and what follows them."""
    for flag in FLAGS:
        if arguments[: len(flag)] == flag:
            more, rest = parted(arguments[len(flag) :])
            return [*flag, *more], rest
    if arguments and arguments[0].startswith("-m") and arguments[0] != "-m":  # as pytest's own tests say -mpytest
        return [], ["-m", arguments[0].removeprefix("-m"), *arguments[1:]]
    return [], arguments


def read_at_start(environment: Mapping[str, str], is_isolated: bool) -> Mapping[str, str]:
    ignored = ("PYTHON",) if is_isolated else ("PYTHONPATH",)
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and not name.startswith(ignored)
    }


if __name__ == "__main__":
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    PATH = [path for path in sys.path[1:] if path not in named]
    import_in_a_run()
    asking = socket.socket(socket.AF_UNIX)
    asking.bind(sys.argv[1])
    asking.listen()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # at which whoever started this knows that it listens
    gc.freeze()
    if asked := serve(asking):
        end(status_of(asked, sys.argv[2]))
