"""A child process that answers requests: how it is started, asked and ended, and how it serves.

Subjects in processes of their own and the workers of references are asked by it. Nothing here imports torch, which the
other side need not have.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from pytest_dsocr.base.words import fit
from pytest_dsocr.subjects.isolation.messages import Channel

CLOSING_S, POLL_S, MAX_GRACE_S = 5.0, 0.2, 10.0
TRACE_LINES, TRACE_BYTES, COLUMNS = 40, 16_384, 200
SHOWN_BYTES = 65_536
STDERR = 2


class ProcessLostError(Exception):
    """The process no longer exists.

    Args:
        how: it ended, such as ``was killed by SIGSEGV``.
        trace: the end of its output.
        limit_s: seconds that it had for the request.
        is_hung: whether it ended for its time was up.
    """

    def __init__(self, how: str, trace: str, limit_s: float, *, is_hung: bool) -> None:
        super().__init__(how)
        self.how, self.trace, self.limit_s, self.is_hung = how, trace, limit_s, is_hung


class ChildProcess:
    """A child process that leads a process group of its own, and never outlives its parent.

    Args:
        command: its words; the file descriptor of the pipe is appended, and the program calls :func:`serve`.
        environment: its variables; by default this process's.
        folder: its working directory; by default this process's.
        first: called in the child in front of the command.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - closed as it ends
        here, there = Pipe()
        in_child: dict[str, Any] = {"preexec_fn": first} if first else {}
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*command, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[there.fileno()],
                start_new_session=True,
                env=environment,
                cwd=folder,
                **in_child,
            )
        except OSError:
            here.close()
            self._output.close()
            raise
        finally:
            there.close()
        self._channel = Channel(here)
        self._is_overdue = False
        self.dropped: list[int] = []
        """Numbers of the states there that are no longer in use."""
        self.close = weakref.finalize(self, _end, self._process, here, self._output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit_s: float, on_event: Callable[[Any], None]) -> tuple[str, Any]:
        """Send a request and return what it ends in, a kind and a value.

        Args:
            request: what the other side's ``answer`` takes.
            limit_s: seconds until it writes where it stands and ends, or, where it does not, is killed.
            on_event: takes what comes in between.

        Raises:
            ProcessLostError: where the process ends over it.
        """
        deadline_s = limit_s + min(MAX_GRACE_S, limit_s)
        try:
            timer = self._killed_after(deadline_s)
            try:
                self._channel.send("request", {**request, "limit_s": limit_s})
                while (message := self._receive())[0] == "event":
                    timer.cancel()
                    on_event(message[1])
                    timer = self._killed_after(deadline_s)
            finally:
                timer.cancel()
        except (EOFError, OSError, ValueError, LookupError) as error:  # what is no message ends it as well
            raise self._lost(limit_s) from error
        return message

    def end(self) -> None:
        """Make it end at once, with all that it has started; a thread that waits for an answer hears of it."""
        kill_group(self._process)

    def kill(self) -> None:
        """End it at once."""
        self.end()
        self.close()

    def take_output(self) -> str:
        """Return the end of what was printed since this was last asked."""
        said = self._tail(SHOWN_BYTES)
        self._output.truncate(0)  # it appends, and so goes on from there
        return said.decode(errors="replace")

    def trace(self) -> str:
        """Return the last lines of its output, fit for any terminal."""
        lines = [line.rstrip() for line in self._tail(TRACE_BYTES).decode(errors="replace").splitlines()]
        return "\n".join(fit(line, COLUMNS) for line in [line for line in lines if line][-TRACE_LINES:])

    def _receive(self) -> tuple[str, Any]:
        while not self._channel.connection.poll(POLL_S):
            if self._process.poll() is not None and not self._channel.connection.poll(0):
                raise EOFError  # a process that it has started may hold its end of the pipe open
        return self._channel.receive()

    def _killed_after(self, limit_s: float) -> threading.Timer:
        timer = threading.Timer(min(limit_s, threading.TIMEOUT_MAX), self._kill_overdue)
        timer.daemon = True
        timer.start()
        return timer

    def _kill_overdue(self) -> None:
        self._is_overdue = True
        self.end()

    def _lost(self, limit_s: float) -> ProcessLostError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
        status, trace = self._process.returncode, self.trace()
        how = "closed its pipe and was killed" if status is None else how_it_ended(status)
        is_hung = self._is_overdue or (status == 1 and TIMED_OUT in self._tail(TRACE_BYTES))
        self.kill()
        return ProcessLostError(how, trace, limit_s, is_hung=is_hung)

    def _tail(self, size: int) -> bytes:
        end = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, max(0, end - size))


TIMED_OUT = b"Timeout ("
"""First words of the stacks that ``faulthandler`` writes if a request takes too long."""


def _end(process: subprocess.Popen[bytes], connection: Any, output: IO[bytes]) -> None:
    """Close its pipe, at which it ends of itself; where it does not, make it."""
    connection.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(CLOSING_S)
    kill_group(process)
    process.wait()
    output.close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """Describe the exit status of a process, such as ``was killed by SIGSEGV``."""
    names = {-number: f"was killed by {number.name}" for number in signal.Signals}
    return names.get(status, f"ended with status {status}")


def serve(
    pipe: int, make: Callable[[Channel], Callable[[Any], None]], on_gone: Callable[[], None] = lambda: None
) -> None:
    """Answer what comes over the file descriptor ``pipe`` until it closes, each request within its limit.

    Args:
        pipe: this end.
        make: gives what answers a request, over a channel.
        on_gone: called where the other side is gone, in front of this process's end.
    """
    faulthandler.enable(STDERR)
    channel = Channel(Connection(pipe))
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests, on_gone), daemon=True).start()
    try:
        answer = make(channel)
        while True:
            request = requests.get()
            limit(request["limit_s"])
            answer(request)
            faulthandler.cancel_dump_traceback_later()
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # a thread that was left behind would be waited for


def limit(limit_s: float) -> None:
    """Dump this process's stack and end it after a number of seconds."""
    faulthandler.dump_traceback_later(min(limit_s, threading.TIMEOUT_MAX), exit=True, file=STDERR)


def _listen(channel: Channel, requests: SimpleQueue[Any], on_gone: Callable[[], None]) -> None:
    """Pass requests on; where the other side is gone, end at once, whatever is running."""
    try:
        while True:
            requests.put(channel.receive()[1])
    finally:
        on_gone()
        os._exit(0)
