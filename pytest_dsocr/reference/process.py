"""The worker's process as its client sees it: started, spoken to, and ended, whatever it does meanwhile."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from pytest_dsocr.reference.environment import command_in
from pytest_dsocr.reference.wire import FromWorker, Request, decode, encode

GRACE_S = 3.0
POLL_S = 0.5
CHUNK_BYTES, MAX_LINE_BYTES = 1 << 16, 1 << 24
QUOTED_CHARACTERS = 80
STDERR_LINES, STDERR_CHARACTERS, STDERR_BYTES = 20, 200, 8192

FLAGS = ("-B", "-X", "faulthandler")
"""Write nothing beside the vendor's files; say where it was that C crashed."""

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class WorkerFault(Exception):  # noqa: N818 - a part of what a ReferenceFaultError says
    """What went wrong with a worker.

    Args:
        what: it did, such as ``was killed by SIGKILL``.
        advice: what to do about it.
        trace: the end of its stderr.
        is_lost: whether the process no longer answers, so that another may be tried.
    """

    def __init__(self, what: str, advice: str, trace: str = "", *, is_lost: bool = False) -> None:
        super().__init__(what)
        self.what, self.advice, self.trace, self.is_lost = what, advice, trace, is_lost
        self.phase = ""


class WorkerProcess:
    """One process, in a session of its own, with a folder for its stderr, its temporary files and its tensors.

    Whoever holds it closes it; at the latest that happens as the holder's process ends.

    Args:
        python: its interpreter.
        time_limit_s: seconds without a message after which it counts as lost.
        apart: keep from it what the environment says to the caller's interpreter; else ``python`` is that one.
    """

    def __init__(self, python: Path, time_limit_s: float, *, apart: bool = True) -> None:
        self.time_limit_s = time_limit_s
        try:
            self._process, self.folder = _start(python, apart)
        except OSError as error:
            what = f"could not be started as {python} ({error.strerror or error})"
            raise WorkerFault(what, "name the environment that `dsocr vendor setup` made") from error
        self.close = weakref.finalize(self, _end, self._process, self.folder)
        self._received = b""

    def kill(self) -> None:
        """End it at once."""
        self.end()
        self.close()

    def end(self) -> None:
        """Make it end at once; a thread that waits for a message hears of it."""
        _signal(self._process, signal.SIGKILL)

    def send(self, request: Request) -> None:
        """Write a request to its stdin; raise ``WorkerFault`` where it takes none within the time limit."""
        assert self._process.stdin
        pipe, line, deadline = self._process.stdin.fileno(), encode(request), self._deadline()
        with suppress(BrokenPipeError):  # it has ended; what it said last will be read
            while line and self._ready(pipe, select.POLLOUT, deadline):
                with suppress(BlockingIOError):
                    line = line[os.write(pipe, line) :]

    def receive(self) -> FromWorker:
        """Give its next message; raise ``WorkerFault`` where none comes within the time limit."""
        assert self._process.stdout
        pipe, deadline = self._process.stdout.fileno(), self._deadline()
        while b"\n" not in self._received:
            if len(self._received) > MAX_LINE_BYTES:
                raise self._garbage(self._received)
            chunk = os.read(pipe, CHUNK_BYTES) if self._ready(pipe, select.POLLIN, deadline) else b""
            if not chunk:
                raise self._ended()
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        try:
            message = decode(line)
        except ValueError:
            raise self._garbage(line) from None
        if isinstance(message, Request):
            raise self._garbage(line)
        return message

    def loss(self, what: str, advice: str) -> WorkerFault:
        """Give the fault with which this process is lost."""
        return WorkerFault(what, advice, self.trace(), is_lost=True)

    def trace(self, more: str = "") -> str:
        """Give the last lines of its stderr, and of ``more``."""
        said = b""
        with suppress(FileNotFoundError), (self.folder / "stderr").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - STDERR_BYTES))
            said = file.read()
        lines = [*said.decode(errors="replace").splitlines(), *more.splitlines()]
        lines = [line.rstrip()[:STDERR_CHARACTERS] for line in lines if line.strip()][-STDERR_LINES:]
        return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)

    def _deadline(self) -> float:
        return time.monotonic() + self.time_limit_s

    def _ready(self, pipe: int, event: int, deadline: float) -> bool:
        """Wait until the pipe is ready; False if the process has ended, though a child may hold its pipe open."""
        poller = select.poll()
        poller.register(pipe, event)
        while time.monotonic() < deadline:
            if poller.poll(POLL_S * 1000):
                return True
            if self._process.poll() is not None:
                return bool(poller.poll(0))
        what = f"gave no sign of life for {self.time_limit_s:g} s and was killed"
        raise self.loss(what, "raise the time limit if it was only slow")

    def _ended(self) -> WorkerFault:
        midway = " in the middle of an answer" if self._received else ""
        try:
            status = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return self.loss(f"closed its pipe{midway} and ran on", "look for the cause in its stderr")
        if status == -signal.SIGKILL:
            return self.loss(f"was killed by SIGKILL{midway}", "if memory ran out, give it more or a smaller case")
        names = {-number: f"was killed by {number.name}" for number in signal.Signals}
        how = names.get(status, f"ended with exit status {status}")
        return self.loss(f"{how}{midway}", "look for the cause in its stderr")

    def _garbage(self, line: bytes) -> WorkerFault:
        start = line[: 4 * QUOTED_CHARACTERS].decode(errors="replace")[:QUOTED_CHARACTERS]
        return self.loss(f"wrote what is no message, {start!r}", "find out what writes to its pipe")


def _start(python: Path, apart: bool) -> tuple[subprocess.Popen[bytes], Path]:
    folder = Path(tempfile.mkdtemp(prefix="dsocr-worker-"))
    executable, *arguments = command_in(python, "pytest_dsocr.reference.worker", str(folder), apart=apart)
    try:
        (folder / "tmp").mkdir()
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [executable, *FLAGS, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env={**(_inherited() if apart else os.environ), **OFFLINE, "TMPDIR": str(folder / "tmp")},
                start_new_session=True,
            )
    except BaseException:
        shutil.rmtree(folder)
        raise
    assert process.stdin
    os.set_blocking(process.stdin.fileno(), False)
    return process, folder


def _inherited() -> dict[str, str]:
    """Give the environment without what is meant for the caller's own interpreter."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "__PYVENV"))}


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Close its stdin, at which it ends of itself; where it does not, make it, with all that it has started."""
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.close()
        if not _has_ended(process):
            _signal(process, signal.SIGTERM)
            _has_ended(process)
    finally:
        _signal(process, signal.SIGKILL)
        _has_ended(process)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    return process.returncode is not None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies
        os.killpg(process.pid, number)
