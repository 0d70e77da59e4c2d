"""A command that runs: what it says is heard up to a limit of time and size, and it ends when it is what to."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import IO, TypeVar

from pytest_dsocr.adapters.fields import MOST_BYTES
from pytest_dsocr.foundation.words import fit, in_shell
from pytest_dsocr.observation.level import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.isolation.transport import how_it_ended, kill_group

TRACE_BYTES, TRACE_LINES, COLUMNS = 16_384, 40, 200
POLL_S = 0.002

Fault = TypeVar("Fault", bound=SubjectFaultError)


class TheCommand(Exception):  # noqa: N818 - stands for what happened there
    """What was run, and the end of what it said on stderr."""


class RunningCommand:
    """One process in a group of its own, which ends with :meth:`kill` at the latest.

    It prints to files: a pipe may be held open by a process that it leaves behind.

    Args:
        words: the command.
        environment: added to this process's.
        is_asked: whether it is written to.

    Raises:
        SubjectFaultError: where it cannot be started.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], *, is_asked: bool = False) -> None:
        self._words = words
        self._stdout, self._stderr = _file(), _file()
        self._taken_bytes = 0
        self._deadline, self._limit_s = inf, inf
        try:
            self._process = subprocess.Popen(
                words,
                bufsize=0,
                stdin=subprocess.PIPE if is_asked else subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=self._stderr,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            fault = self.fault(f"cannot be started ({error}); name one that runs in a shell here")
            self._stdout.close()
            self._stderr.close()
            raise fault from error

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def limit(self, limit_s: float) -> None:
        """Limit what follows."""
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s

    def output(self) -> bytes:
        """Wait for its end and give what it printed; raise ``SubjectFaultError`` where that was no success."""
        while self.is_running:
            self._wait()
        output = self._printed()
        if status := self._process.returncode:
            raise self.fault(f"{how_it_ended(status)}; make it end with status 0 where it has read the page")
        return output

    def ask(self, line: bytes) -> None:
        """Write a line to it."""
        stdin = self._process.stdin
        assert stdin
        with suppress(OSError):  # it has ended
            stdin.write(line)
            return
        raise self._ended_early()

    def line(self) -> bytes:
        """Wait for the next line that it prints, and give that."""
        is_over = False
        while b"\n" not in (printed := self._printed()):
            if is_over:
                raise self._ended_early()
            is_over = not self.is_running  # what it printed last is looked for once more
            self._wait()
        line = printed[: printed.find(b"\n") + 1]
        self._taken_bytes += len(line)
        return line

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        kill_group(self._process)
        self._process.wait()
        for stream in (self._process.stdin, self._stdout, self._stderr):
            if stream:
                stream.close()

    def close(self) -> None:
        """Let one that is asked end by itself, at the end of its input, within a second."""
        if self._process.stdin:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.kill()

    def fault(self, what: str) -> SubjectFaultError:
        """Return a fault that says what the command did, then what to do."""
        return self._of(SubjectFaultError, what)

    def _wait(self) -> None:
        """Let it run on for a moment, within its limits."""
        self._check_size()
        if time.monotonic() > self._deadline:
            what = f"took more than {self._limit_s:g} s; if it was only slow, raise its time limit"
            raise self._of(SubjectHungError, what)
        time.sleep(POLL_S)

    def _printed(self) -> bytes:
        """Return what it printed that was not taken yet."""
        self._check_size()
        return os.pread(self._stdout.fileno(), MOST_BYTES, self._taken_bytes)

    def _check_size(self) -> None:
        if os.fstat(self._stdout.fileno()).st_size - self._taken_bytes > MOST_BYTES:
            raise self.fault(f"printed more than {MOST_BYTES >> 20} MiB; let it print the text of the page alone")

    def _ended_early(self) -> SubjectFaultError:
        status = self._process.wait()
        return self.fault(f"{how_it_ended(status)} and did not answer; another is started for the next")

    def _of(self, kind: type[Fault], what: str) -> Fault:
        """Make a fault of the reading, with what the command said last."""
        words, size = in_shell(self._words), os.fstat(self._stderr.fileno()).st_size
        said = os.pread(self._stderr.fileno(), TRACE_BYTES, max(0, size - TRACE_BYTES)).decode(errors="replace")
        lines = [fit(line.rstrip(), COLUMNS) for line in said.splitlines() if line.strip()][-TRACE_LINES:]
        last = f"; it said last: {lines[-1]}" if lines else ""
        fault = kind("read", f"the command {what}{last}; it was: {fit(words, COLUMNS)}")
        fault.__cause__ = TheCommand("\n".join([words, *(lines or ["it said nothing on stderr"])]))
        return fault


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile(buffering=0)
