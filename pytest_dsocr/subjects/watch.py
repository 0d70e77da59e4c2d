"""What a run watches while the subject's code runs; outside a run nothing is limited, and notes are lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from pytest_dsocr.subjects.surroundings import Surroundings
from pytest_dsocr.subjects.time_limit import TimeLimit

STDERR = 2


class Watch:
    """One run's.

    Args:
        notes: takes sentences about what the subject does besides answering, each once.
    """

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.surroundings = Surroundings(notes)
        self._limit: TimeLimit | None = None
        self._stderr: int | None = None

    def keep_stderr(self) -> None:
        """Hold on to where stderr goes now."""
        self._stderr = os.dup(STDERR)

    def limit(self, limit_s: float, *, last_resort: bool = True) -> None:
        """Limit each call from now on; the last message goes to the stderr of the time at which the watch began."""
        self._limit = TimeLimit(limit_s, STDERR if self._stderr is None else self._stderr, last_resort=last_resort)

    def limited(self, what: str) -> AbstractContextManager[None]:
        """Watch one call."""
        return self._limit.of(what) if self._limit else nullcontext()

    def unlimited(self) -> AbstractContextManager[None]:
        """Suspend the limit for what is called meanwhile, which has a limit of its own."""
        return self._limit.paused() if self._limit else nullcontext()

    @property
    def limit_s(self) -> float:
        """Seconds for one call."""
        return self._limit.limit_s if self._limit else float("inf")

    def note(self, sentence: str) -> None:
        """Note something about the subject, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def end(self) -> None:
        """Stop watching."""
        if self._limit:
            self._limit.stop()
        if self._stderr is not None:
            os.close(self._stderr)
        self._limit = self._stderr = None


_WATCHES = [Watch([])]


def current() -> Watch:
    """Give the watch of the run that began last: one may run another within its process."""
    return _WATCHES[-1]


def begin(notes: list[str]) -> Watch:
    """Watch a run until :func:`end`; called while stderr is not captured, as the last message goes there."""
    watch = Watch(notes)
    with suppress(OSError):  # there may be none
        watch.keep_stderr()
    _WATCHES.append(watch)
    return watch


def end(watch: Watch) -> None:
    """Let a run be over."""
    if watch in _WATCHES[1:]:
        _WATCHES.remove(watch)
        watch.end()


@contextmanager
def watching(notes: list[str]) -> Iterator[Watch]:
    """Watch what runs within the context."""
    watch = begin(notes)
    try:
        yield watch
    finally:
        end(watch)
