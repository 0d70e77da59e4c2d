"""A process that kills this one where it gives no sign of life: one that is stopped runs no thread that could."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

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
        """Give a sign of life; a forked copy of this process gives none."""
        if os.getpid() == self._pid:
            with suppress(OSError):
                os.write(self._pipe, ARMED if armed else DISARMED)

    def stop(self) -> None:
        """End it; a process that the subject has left behind may hold its pipe open."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
