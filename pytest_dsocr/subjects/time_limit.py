"""The time limit of the subject's calls: a call is interrupted, or else the process ends."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType

from pytest_dsocr.subjects.guard import Guard

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
