"""The time limit of the subject's calls: a call is interrupted, or else the process ends."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType

ARMED, DISARMED = b"+", b"-"
SCRIPT = """
import os, select, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
parent, most_s, left_s, tick_s = int(sys.argv[1]), float(sys.argv[2]), None, 0.25
while os.getppid() == parent:
    if select.select([0], [], [], tick_s)[0]:
        if not (signs := os.read(0, 4096)):
            break
        left_s = most_s if signs.endswith(b"+") else None
    elif left_s is not None and (left_s := left_s - tick_s) <= 0:
        told = "is stopped, or stuck, within a call of the subject's; it is killed"
        os.write(2, f"\\ndsocr: process {parent} {told}\\n".encode())
        os.kill(parent, signal.SIGKILL)
        break
"""
"""It counts ticks of its own, so that it waits where the whole run is suspended, as by Ctrl-Z."""


class Guard:
    """Kills this process, by SIGKILL, so many seconds after the last :meth:`tell` that it is armed.

    Args:
        after_s: more than any pause between two of them.
        stderr: a file descriptor for its last message.
    """

    def __init__(self, after_s: float, stderr: int) -> None:
        self._pid = os.getpid()
        words = [sys.executable, "-I", "-S", "-c", SCRIPT, str(self._pid), str(after_s)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
        assert self._process.stdin
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)

    def tell(self, *, armed: bool) -> None:
        """Send a sign of life; a forked copy of this process sends none."""
        if os.getpid() == self._pid:
            with suppress(OSError):
                os.write(self._pipe, ARMED if armed else DISARMED)

    def stop(self) -> None:
        """End it; a process that the subject has left behind may hold its pipe open."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()


SIGNAL = signal.SIGURG
"""Interrupts sleeping and waiting; not in other use, and ignored where it has no handler."""
GRACE_S, POLL_S = 10.0, 0.02
EXIT_STATUS = 70


class Overdue(BaseException):
    """Raised inside of the subject's code when its time is up, so that its traceback says where that was."""


class _Call:
    def __init__(self, what: str, deadline: float) -> None:
        self.what, self.deadline = what, deadline
        self.has_ended = False

    @property
    def is_overdue(self) -> bool:
        return time.monotonic() >= self.deadline


class TimeLimit:
    """Watches calls in the main thread, from a thread of its own that starts with the first of them.

    A call that is over its limit is interrupted by a signal, whose handler raises :class:`Overdue`. One that does not
    take it within a grace time (C code that waits for ever) ends the process, with every thread's stack on ``stderr``.
    So does one that holds the interpreter's lock, after twice the limit; one that is stopped is killed soon after.

    Args:
        limit_s: seconds for one call.
        stderr: a file descriptor that is not captured.
        last_resort: whether the interpreter's one timer of ``faulthandler`` is free to be used.
    """

    def __init__(self, limit_s: float, stderr: int, *, last_resort: bool = True) -> None:
        self.limit_s, self.grace_s = limit_s, min(GRACE_S, limit_s)
        self._stderr, self._last_resort = stderr, last_resort
        self._call: _Call | None = None
        self._is_armed = False
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._guard: Guard | None = None

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Watch one call, said in words; of another thread than the main one nothing is watched."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._watch()
        outer, before = self._call, signal.signal(SIGNAL, self._interrupt)
        call = self._call = _Call(what, time.monotonic() + self.limit_s)
        if not self._is_armed:
            self._arm()
        try:
            yield
        finally:
            call.has_ended = True
            self._call = outer
            signal.signal(SIGNAL, before)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the limit of the current call."""
        call = self._call
        if call:
            call.deadline = inf
        try:
            yield
        finally:
            if call:
                call.deadline = time.monotonic() + self.limit_s

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._watcher:
            self._watcher.join()
            self._disarm()
        if self._guard:
            self._guard.stop()

    def _watch(self) -> None:
        if self._watcher is None:
            self._guard = Guard(self._last_s + 1, self._stderr) if self._last_resort else None
            self._watcher = threading.Thread(target=self._run, name="dsocr-time-limit", daemon=True)
            self._watcher.start()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            self._put_off()
            call = self._call
            if call and call.is_overdue:
                self._end(call)
            pause_s = self._pause_s()

    def _put_off(self) -> None:
        """Postpone the last resort, or cancel it; it takes effect where this thread is kept from postponing it."""
        if self._call is None:
            self._disarm()
        if self._call is not None:
            self._arm()

    def _arm(self) -> None:
        if self._last_resort:
            self._is_armed = True
            faulthandler.dump_traceback_later(self._last_s, exit=True, file=self._stderr)
            if self._guard:
                self._guard.tell(armed=True)

    def _disarm(self) -> None:
        if self._is_armed:
            self._is_armed = False
            faulthandler.cancel_dump_traceback_later()
            if self._guard:
                self._guard.tell(armed=False)

    @property
    def _last_s(self) -> float:
        return 2 * (self.limit_s + self.grace_s)

    def _pause_s(self) -> float:
        call = self._call
        return min(self.limit_s, max(POLL_S, call.deadline - time.monotonic())) if call else self.limit_s

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        call = self._call
        if call and call.is_overdue:
            call.deadline = inf
            raise Overdue(f"{self.limit_s:g} s are over")

    def _end(self, call: _Call) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
        until = time.monotonic() + self.grace_s
        while time.monotonic() < until:
            if call.has_ended or self._stop.wait(POLL_S):
                return
        told = f"\ndsocr: {call.what} took more than {self.limit_s:g} s and cannot be interrupted; the process ends\n"
        os.write(self._stderr, told.encode())
        faulthandler.dump_traceback(file=self._stderr, all_threads=True)
        os._exit(EXIT_STATUS)
