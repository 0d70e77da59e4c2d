"""The time limit of the subject's calls: a call is interrupted, or else the process is killed.

Run as a script, this is the guard, a separate process. Only a separate process is sure to run, because pytest's may be
stopped, or wait within C code.
"""

import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType

INTERRUPT = signal.SIGURG
"""Signal that interrupts sleeping and waiting. Nothing else uses it, and without a handler it is ignored."""
DUMP = signal.SIGUSR2
"""Signal that makes every thread write its stack, even while C code holds the interpreter's lock."""
GRACE_S, TICK_S, DUMPING_S = 10.0, 0.05, 1.0
PIPE_BYTES = 65_536


class Overdue(BaseException):
    """Raised within the subject's code when its time is up; the traceback shows where."""


class TimeLimit:
    """Watch over calls in the main thread, by a guard process that the first call starts.

    After its limit, a call is interrupted by a signal, and the signal's handler raises :class:`Overdue`. C code that
    waits for ever, or a stopped process, does not react. After a grace time every thread's stack goes to ``stderr``,
    and the process is killed.

    Args:
        grace_s: seconds from the limit of a call until the process is killed.
        stderr: a file descriptor that is not captured.
        now: the clock, in seconds.
    """

    def __init__(self, grace_s: float, stderr: int, now: Callable[[], float] = time.monotonic) -> None:
        self._grace_s, self._stderr, self._now = grace_s, stderr, now
        self._call, self._limit_s, self._deadline = "", inf, inf
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    @contextmanager
    def of(self, what: str, limit_s: float) -> Iterator[None]:
        """Limit one call, which ``what`` describes; ignore a call within another, and a call in another thread."""
        if self._call or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(INTERRUPT, self._interrupt)
        self._watch(what, limit_s)
        try:
            yield
        finally:
            self._watch("")
            signal.signal(INTERRUPT, before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the limit of the current call, and restart it afterwards."""
        call, limit_s = self._call, self._limit_s
        if call:
            self._watch("")
        try:
            yield
        finally:
            if call:
                self._watch(call, limit_s)

    def stop(self) -> None:
        """End the guard; a process that the subject has left behind may hold its pipe open."""
        if self._guard and self._guard.stdin:
            self._guard.stdin.close()
            self._guard.kill()
            self._guard.wait()
            faulthandler.unregister(DUMP)

    def _watch(self, what: str, limit_s: float = inf) -> None:
        """Send the guard the call that starts now; a forked copy of this process sends nothing."""
        self._call, self._limit_s, self._deadline = what, limit_s, self._now() + limit_s
        guard = self._guard = self._guard or self._started()
        if os.getpid() == self._pid and guard.stdin:
            with suppress(OSError):
                os.write(guard.stdin.fileno(), f"{limit_s} {what}\n".encode())

    def _started(self) -> subprocess.Popen[bytes]:
        faulthandler.register(DUMP, file=self._stderr)
        command = [sys.executable, "-I", "-S", __file__, str(self._pid), str(self._grace_s)]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._stderr)
        assert guard.stdin
        os.set_blocking(guard.stdin.fileno(), False)
        return guard

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._call and self._now() >= self._deadline:
            self._deadline = inf
            raise Overdue(f"{self._limit_s:g} s are over")


def guard_process(process: int, grace_s: float) -> None:
    """Interrupt ``process`` in a call that takes too long, in the end kill it; return when it is gone.

    Time is counted in ticks, so that it stands still where the whole run is suspended, as by Ctrl-Z.
    """
    parent = os.getppid()  # what started this script, which may have done so through a program in between
    call, limit_s, elapsed_s = "", inf, 0.0
    while os.getppid() == parent:
        if select.select([0], [], [], TICK_S)[0]:
            if not (said := os.read(0, PIPE_BYTES)):
                return
            limit, _, call = said.decode().split("\n")[-2].partition(" ")
            limit_s, elapsed_s = float(limit), 0.0
        elif call:
            elapsed_s += TICK_S
            if elapsed_s >= limit_s + grace_s:
                _kill(process, f"{call} took more than {limit_s:g} s and cannot be interrupted")
            elif elapsed_s >= limit_s:
                os.kill(process, INTERRUPT)


def _kill(process: int, why: str) -> None:
    os.write(2, f"\ndsocr: {why}; the process ends\n".encode())
    os.kill(process, DUMP)
    time.sleep(DUMPING_S)
    os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        guard_process(int(sys.argv[1]), float(sys.argv[2]))
