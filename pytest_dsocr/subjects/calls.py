"""Every call of the subject's code: limited in time, what it changes put back, its errors faults of a stage.

Outside of a run nothing is limited, and notes are lost.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import fit
from pytest_dsocr.observation.level import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.surroundings import Surroundings
from pytest_dsocr.subjects.time_limit import Overdue, TimeLimit

COLUMNS = 200


def brief(error: BaseException) -> str:
    """Return an error's kind and message on one line of at most :data:`COLUMNS` that any terminal takes."""
    kind = type(error).__name__
    try:
        message = " ".join(str(error)[: 4 * COLUMNS].split())
    except Overdue as overdue:
        overdue.__context__ = None  # its message must not be asked for again
        raise
    except BaseException as its_own:
        message = f"its message cannot be shown, as asking for it raises {type(its_own).__name__}"
    return fit(f"{kind}: {message}" if message else kind, COLUMNS)


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
    """Return the watch of the run that began last: one may run another within its process."""
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


Faulty = Callable[[BaseException], DsocrError]
"""Turns the subject's error into the error that is raised here."""


@contextmanager
def at_stage(stage: str, method: str) -> Iterator[None]:
    """Turn whatever the subject's ``method`` raises into a :class:`SubjectFaultError` of ``stage``.

    Every call of the subject's code goes through here: it is limited in time, and what it changes around itself is put
    back. ``KeyboardInterrupt`` passes where it is the user's.
    """

    def raised(error: BaseException) -> DsocrError:
        return SubjectFaultError(
            stage, f"the subject's {method} raised in {stage} ({brief(error)}); see the error that this one came from"
        )

    with guarded(stage, method, raised):
        yield


@contextmanager
def guarded(stage: str, method: str, raised: Faulty) -> Iterator[None]:
    """Run the subject's code, watched; ``raised`` turns its error into the one that is raised here.

    Raises:
        SubjectHungError: where its time is up.
        KeyboardInterrupt: where the user interrupts.
    """
    watch, what = current(), f"the subject's {method} in {stage}"
    kept = watch.surroundings.preserved(method, quickly=stage == "decode")
    try:
        with hearing_interrupts(), kept, watch.limited(what):
            try:
                yield
            except (Overdue, SubjectFaultError):
                raise
            except BaseException as error:
                fault = raised(error)
                raise fault from (error if fault is not error else error.__cause__)
    except Overdue as overdue:
        raise hung(stage, method, watch.limit_s) from overdue


def hung(stage: str, method: str, limit_s: float) -> SubjectHungError:
    """Return the fault of a call that took too long; its cause shall be the interrupted stack."""
    return SubjectHungError(
        stage,
        f"the subject's {method} did not return in {stage} within {limit_s:g} s and was interrupted; if it was only "
        "slow, raise the limit: --dsocr-subject-time-limit=SECONDS",
    )
