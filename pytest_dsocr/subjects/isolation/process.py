"""The subject's process as the run sees it: started, asked, and ended, whatever it does meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from typing import IO, Any

from pytest_dsocr.foundation.words import fit
from pytest_dsocr.subjects.isolation.wire import Channel

BOOT = """import json, sys
sys.path[:], *arguments = json.loads(sys.argv[1])
from pytest_dsocr.subjects.isolation.child import main
main(*arguments)"""
CLOSING_S, POLL_S = 5.0, 0.2
MAX_GRACE_S = 10.0
TRACE_LINES, TRACE_BYTES, COLUMNS = 40, 16_384, 200
SHOWN_BYTES = 65_536


class ProcessLostError(Exception):
    """The process no longer exists.

    Args:
        how: it ended, such as ``was killed by SIGSEGV``.
        trace: the end of its stderr.
        is_hung: whether it ended for its time was up.
    """

    def __init__(self, how: str, trace: str, *, is_hung: bool) -> None:
        super().__init__(how)
        self.how, self.trace, self.is_hung = how, trace, is_hung


class SubjectProcess:
    """One process, in a session of its own, that ends with this one at the latest."""

    def __init__(self) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - closed as it ends
        ours, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, json.dumps([sys.path, theirs.fileno()])],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(ours)
        self.dropped: list[int] = []
        """Numbers of the states there that are no longer in use."""
        self.close = weakref.finalize(self, _end, self._process, ours, self._output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit_s: float, on_event: Callable[[Any], None]) -> tuple[str, Any]:
        """Send a request and give what it ends in, a kind and a value.

        Args:
            request: what :class:`~pytest_dsocr.subjects.isolation.child.SubjectServer` takes.
            limit_s: seconds until it writes where it stands and ends, or, where it does not, is killed.
            on_event: takes what comes in between.

        Raises:
            ProcessLostError: where the process ends over it.
        """
        began = time.monotonic()
        try:
            with self._killed_after(limit_s + min(MAX_GRACE_S, limit_s)):
                self._channel.send("request", {**request, "limit_s": limit_s})
                while (message := self._receive())[0] == "event":
                    on_event(message[1])
        except (EOFError, OSError, ValueError, LookupError) as error:  # what is no message ends it as well
            raise self._lost(is_hung=time.monotonic() - began >= limit_s) from error
        return message

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        _signal_group(self._process)
        self.close()

    def take_output(self) -> str:
        """Give the end of what was printed since this was last asked."""
        said = self._tail(SHOWN_BYTES)
        self._output.truncate(0)  # it appends, and so goes on from there
        return said.decode(errors="replace")

    def _receive(self) -> tuple[str, Any]:
        while not self._channel.connection.poll(POLL_S):
            if self._process.poll() is not None and not self._channel.connection.poll(0):
                raise EOFError  # a process that it has started may hold its end of the pipe open
        return self._channel.receive()

    @contextmanager
    def _killed_after(self, limit_s: float) -> Iterator[None]:
        timer = threading.Timer(limit_s, _signal_group, [self._process])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _lost(self, *, is_hung: bool) -> ProcessLostError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
        status = self._process.returncode
        names = {-number: f"was killed by {number.name}" for number in signal.Signals}
        how = "closed its pipe and was killed" if status is None else names.get(status, f"ended with status {status}")
        trace = self._trace()
        self.kill()
        return ProcessLostError(how, trace, is_hung=is_hung)

    def _trace(self) -> str:
        lines = [line.rstrip() for line in self._tail(TRACE_BYTES).decode(errors="replace").splitlines()]
        return "\n".join(fit(line, COLUMNS) for line in [line for line in lines if line][-TRACE_LINES:])

    def _tail(self, size: int) -> bytes:
        end = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, max(0, end - size))


def _end(process: subprocess.Popen[bytes], connection: Any, output: IO[bytes]) -> None:
    """Close its pipe, at which it ends of itself; where it does not, make it."""
    connection.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(CLOSING_S)
    _signal_group(process)
    process.wait()
    output.close()


def _signal_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
