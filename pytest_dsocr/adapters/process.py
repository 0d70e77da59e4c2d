"""A running command, with limits of time and size on its output; it ends when asked, or is killed."""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TypeVar

from pytest_dsocr.adapters.fields import MOST_BYTES
from pytest_dsocr.base.process import end_with_parent
from pytest_dsocr.base.words import fit, in_shell
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.calls import current
from pytest_dsocr.subjects.isolation.transport import how_it_ended, kill_group

TRACE_BYTES, TRACE_LINES, COLUMNS = 16_384, 40, 200
CHUNK_BYTES, POLL_S = 65_536, 0.05

ProcessFaultT = TypeVar("ProcessFaultT", bound=SubjectFaultError)


class TheCommand(Exception):  # noqa: N818 - stands for what happened there
    """The command that was run, and the end of its stderr."""


class RunningCommand:
    """Process in its own group, which ends with :meth:`kill` at the latest.

    Args:
        words: the command.
        environment: added to this process's.
        is_asked: whether requests are written to its input.

    Raises:
        SubjectFaultError: if it cannot be started.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], *, is_asked: bool = False) -> None:
        self._words = words
        self._stdout, self._stderr = bytearray(), bytearray()
        self._deadline, self._limit_s = inf, inf
        try:
            # interrupted in the middle, the start would leave a process that nobody knows
            with current().unlimited(), current().hiding() as hiding:
                self._process = subprocess.Popen(
                    words,
                    bufsize=0,
                    stdin=subprocess.PIPE if is_asked else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, **environment},
                    start_new_session=True,
                    preexec_fn=hiding.after(end_with_parent),
                )
        except (OSError, ValueError) as error:
            raise self.fault(f"cannot be started ({error}); name one that runs in a shell here") from error
        self._selector = selectors.DefaultSelector()
        for stream, heard in ((self._process.stdout, self._stdout), (self._process.stderr, self._stderr)):
            assert stream
            self._selector.register(stream, selectors.EVENT_READ, heard)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def limit(self, limit_s: float) -> None:
        """Limit what follows."""
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s

    def output(self) -> bytes:
        """Wait for its end and return its output; raise ``SubjectFaultError`` if it failed."""
        while self._hears():
            pass
        if status := self._process.returncode:
            raise self.fault(f"{how_it_ended(status)}; make it end with status 0 where it has read the page")
        return bytes(self._stdout)

    def ask(self, line: bytes) -> None:
        """Write a line to it."""
        stdin = self._process.stdin
        assert stdin
        with suppress(OSError):  # the process has ended
            stdin.write(line)
            return
        raise self._ended_early()

    def line(self) -> bytes:
        """Wait for its next line of output and return it."""
        while (end := self._stdout.find(b"\n")) < 0:
            if not self._hears():
                raise self._ended_early()
        line = bytes(self._stdout[: end + 1])
        del self._stdout[: end + 1]
        return line

    def kill(self) -> None:
        """End it at once, with all processes that it started."""
        kill_group(self._process)
        self._process.wait()
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def close(self) -> None:
        """Close the input of a process that reads requests, and wait up to a second for it to end; then kill it."""
        if self._process.stdin:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.kill()

    def fault(self, what: str, kind: type[ProcessFaultT] = SubjectFaultError) -> ProcessFaultT:  # type: ignore[assignment]
        """Return a fault that states what the command did, then what to do."""
        lines = [line.rstrip() for line in self._stderr.decode(errors="replace").splitlines() if line.strip()]
        said = f"; it said last: {fit(lines[-1], COLUMNS)}" if lines else ""
        command = in_shell(self._words)
        fault = kind("read", f"the command {what}{said}; it was: {fit(command, COLUMNS)}")
        trace = "\n".join(fit(line, COLUMNS) for line in lines[-TRACE_LINES:])
        fault.__cause__ = TheCommand(f"{command}\n{trace or 'it said nothing on stderr'}")
        return fault

    def _hears(self) -> bool:
        """Take the output so far; return False if the process has ended and no more can come.

        A process that it started and left running may keep its pipes open.
        """
        is_over = not self.is_running
        if self._selector.get_map():
            ready = self._selector.select(0 if is_over else POLL_S)
        else:
            ready = []
            time.sleep(0 if is_over else POLL_S / 10)
        for key, _ in ready:
            heard = os.read(key.fd, CHUNK_BYTES)
            key.data.extend(heard)
            if not heard:
                self._selector.unregister(key.fileobj)
        del self._stderr[:-TRACE_BYTES]
        if len(self._stdout) > MOST_BYTES:
            raise self.fault(f"printed more than {MOST_BYTES >> 20} MiB; let it print the text of the page alone")
        if is_over and not ready:
            return False
        if time.monotonic() > self._deadline:
            slow = f"took more than {self._limit_s:g} s; if it was only slow, raise its time limit"
            raise self.fault(slow, SubjectHungError)
        return True

    def _ended_early(self) -> SubjectFaultError:
        while self._hears():
            pass
        return self.fault(
            f"{how_it_ended(self._process.returncode)} and did not answer; another is started for the next"
        )
