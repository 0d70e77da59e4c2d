"""Imports what takes long, and forks a process for each call: ``server.py SOCKET PYTHON``; ends with its stdin.

A script of its own. This project and the plugins of pytest are imported within a run of pytest, which rewrites their
assertions, and so that a run in a process has nothing to say of them.
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
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
    *("torch", "torch.fx.experimental.symbolic_shapes", "safetensors.torch", "tokenizers"),
    *("scipy.optimize", "PIL.Image", "jinja2", "rapidfuzz", "pytest"),
    *("transformers.models.auto.tokenization_auto", "transformers.tokenization_utils_fast"),
)
TRITONS = ("fast.fused", "fast.sam_fused", *(f"kernels.{of}" for of in ("attention", "experts", "products", "sam")))
"""Modules that need the triton package, which is optional."""
STARTED = ("__main__", "reference.worker", "reference.probe")
"""How names of modules end that are run, and not imported."""
READ_AT_START = ("PYTHON", "OMP_", "MKL_", "TORCH_", "LD_")
"""How variables begin that an interpreter or a library reads as it starts: another value needs another interpreter."""
FLAGS = (["-u"], ["-P"], ["-B"], ["-I"], ["-X", "faulthandler"])
"""What may stand in front of ``-m`` or ``-c``."""
MOVED, FILES = 1000, 64

Call = Mapping[str, Any]


class Server:
    """Forks, tells each client of the end of its process, and ends the process of a client that is gone."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        self._running: dict[int, tuple[socket.socket, bool]] = {}
        """By process id, the client of each, and whether the process leads a group of processes."""

    def serve(self) -> Call | None:
        """Answer until stdin ends; returns in each process that is forked, with its call, and here with nothing."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    for process in [*self._running]:
                        self._end(process)
                    return None
                if key.fileobj is self._listener:
                    if call := self._fork():
                        return call
                elif key.data is not None:
                    self._end(key.data)
                else:
                    self._tell(key.fd)

    def _fork(self) -> Call | None:
        client, _ = self._listener.accept()
        size, content = 0, b""
        with suppress(OSError), client.makefile("rb") as sent:
            head, files, *_ = socket.recv_fds(client, 4, FILES)
            size = int.from_bytes(head, "big")
            content = sent.read(size)
        if not size or len(content) < size:  # it was killed before it had asked
            client.close()
            return None
        call = json.loads(content)
        process = os.fork()
        if not process:
            take(files, call["files"])
            return {**call}
        for file in files:
            os.close(file)
        with suppress(OSError):  # one that is gone by now is noticed as ever
            client.sendall(process.to_bytes(4, "big"))
        self._running[process] = client, call["is_leader"]
        self._selector.register(client, selectors.EVENT_READ, process)
        self._selector.register(os.pidfd_open(process), selectors.EVENT_READ)
        return None

    def _end(self, process: int) -> None:
        """End a process whose client is gone; that it has ended is noticed as ever."""
        if process not in self._running:  # it has ended at the same moment
            return
        client, is_leader = self._running[process]
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL) if is_leader else os.kill(process, signal.SIGKILL)
        with suppress(KeyError):
            self._selector.unregister(client)

    def _tell(self, ended: int) -> None:
        """Tell a client how its process has ended."""
        self._selector.unregister(ended)
        os.close(ended)
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            client, _ = self._running.pop(process)
            with suppress(KeyError):
                self._selector.unregister(client)
            with suppress(OSError), client:
                client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


class Importing:
    """A plugin that imports this project where pytest would collect tests."""

    def pytest_collection(self) -> bool:
        import_all()
        return True


def import_all() -> None:
    """Import what takes long, and what the package has but for the suites and for what is run."""
    for name in LONG:
        importlib.import_module(name)
    package = importlib.import_module("pytest_dsocr")
    for module in pkgutil.walk_packages(package.__path__, "pytest_dsocr."):
        if not module.name.startswith("pytest_dsocr.suites") and not module.name.endswith(STARTED + TRITONS):
            importlib.import_module(module.name)


def import_in_a_run() -> None:
    """Import what a run has imported at its end."""
    import pytest

    nowhere = io.StringIO()  # a forked process would print what is left in a buffer
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(nowhere):
        status = pytest.main(["-q", "-c", os.devnull, "--rootdir", folder, folder], plugins=[Importing()])
    if status != pytest.ExitCode.NO_TESTS_COLLECTED:
        sys.exit(status)


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
    told = what_is_run(arguments)
    is_isolated = "-I" in flags
    if told is None or read_at_start(os.environ, is_isolated) != read_at_start(call["environment"], is_isolated):
        os.execve(sys.executable, [sys.executable, *flags, *arguments], call["environment"])
    os.environ.clear()
    os.environ.update(call["environment"])
    tempfile.tempdir = None  # it was found by this process's own environment
    sys.executable = python
    sys.dont_write_bytecode |= "-B" in flags
    if "faulthandler" in flags:
        faulthandler.enable()
    how, what, rest = told
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
    """Give the flags in front, and what follows them."""
    for flag in FLAGS:
        if arguments[: len(flag)] == flag:
            more, rest = parted(arguments[len(flag) :])
            return [*flag, *more], rest
    return [], arguments


def what_is_run(arguments: list[str]) -> tuple[str, str, list[str]] | None:
    """Give ``-m`` or ``-c``, what it is given, and what follows; None where it is called in another way."""
    if not arguments or arguments[0][:2] not in ("-m", "-c"):
        return None
    how, what = arguments[0][:2], arguments[0][2:]
    return (how, what, arguments[1:]) if what else (how, arguments[1], arguments[2:])


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
    called = Server(sys.argv[1])
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
    gc.freeze()
    if asked := called.serve():
        end(status_of(asked, sys.argv[2]))
