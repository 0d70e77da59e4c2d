"""A user's Ctrl-C told from a ``KeyboardInterrupt`` that the subject's own code raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Let a SIGINT end as ``KeyboardInterrupt``, even where the subject catches it.

    What the handler in place answers with ``KeyboardInterrupt`` counts; one that the subject puts in its place is taken
    out again. A SIGINT that the subject sends to its own process cannot be told from a user's, and interrupts as well.
    Signals come to the main thread alone, and so nothing is heard in others.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    answer, heard = before, False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        try:
            answer(number, frame)
        except KeyboardInterrupt:
            heard = True
            raise

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            raise KeyboardInterrupt
