"""Calls of the subject's code: limited in time, with its side effects undone and its errors assigned to a stage.

Outside of a run nothing is limited, and notes are lost.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from math import inf
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.hiding import Hiding
from pytest_dsocr.base.words import fit
from pytest_dsocr.records.config import START_LIMIT_S, NotOfferedError, SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.surroundings import Surroundings
from pytest_dsocr.subjects.time_limit import GRACE_S, Overdue, TimeLimit

COLUMNS = 200
NOT_HIDDEN = "goldens and kept answers are not hidden from the subject's process: this system has no Landlock"
STDERR = 2
LOAD = "load"


def brief(error: BaseException) -> str:
    """Return an error's type and message on one printable line of at most :data:`COLUMNS` characters."""
    kind = type(error).__name__
    try:
        message = " ".join(str(error)[: 4 * COLUMNS].split())
    except Overdue as overdue:
        overdue.__context__ = None  # its message must not be asked for again
        raise
    except BaseException as its_own:
        message = f"its message cannot be shown, as asking for it raises {type(its_own).__name__}"
    return fit(f"{kind}: {message}" if message else kind, COLUMNS)


class CallWatch:
    """Watch over the subject's calls in one run.

    Args:
        notes: list of sentences about the subject's side effects, each once.
        stderr: a file descriptor for the last message of a process that is killed.
        outer: the watch of the run that started this one.
    """

    def __init__(self, notes: list[str], stderr: int = STDERR, outer: "CallWatch | None" = None) -> None:
        self.notes, self.outer = notes, outer
        self.read = list[str]()
        """Ids of the cases read so far, in order, with repetitions."""
        self.hidden: tuple[Path, ...] = ()
        """Folders that a process of the subject's cannot read: goldens and kept answers."""
        self.surroundings = Surroundings(notes)
        self._limit: TimeLimit | None = None
        self._limit_s = self._start_limit_s = inf
        self._stderr = stderr

    def limit(
        self,
        limit_s: float,
        start_limit_s: float = START_LIMIT_S,
        grace_s: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limit each call from now on.

        Args:
            limit_s: seconds for one call.
            start_limit_s: seconds for loading the subject.
            grace_s: seconds from an interruption without effect until the process is killed.
            now: the clock.
        """
        self._limit_s, self._start_limit_s = limit_s, start_limit_s
        self._limit = TimeLimit(min(GRACE_S, 2 * limit_s) if grace_s is None else grace_s, self._stderr, now)

    def limited(self, what: str, limit_s: float) -> AbstractContextManager[None]:
        """Watch one call."""
        return self._limit.of(what, limit_s) if self._limit else nullcontext()

    def unlimited(self) -> AbstractContextManager[None]:
        """Suspend the limit for code that has a limit of its own."""
        return self._limit.paused() if self._limit else nullcontext()

    def limit_s(self, stage: str) -> float:
        """Return the seconds for one call of a stage."""
        return self._start_limit_s if stage == LOAD else self._limit_s

    def note(self, sentence: str) -> None:
        """Note something about the subject, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @contextmanager
    def hiding(self) -> Iterator[Hiding]:
        """Return the rules for a process of the subject's, and note where the system has none."""
        hiding = Hiding(self.hidden)
        if not hiding.is_in_force:
            self.note(NOT_HIDDEN)
        try:
            yield hiding
        finally:
            hiding.close()

    def end(self) -> None:
        """Stop watching."""
        if self._limit:
            self._limit.stop()
        if self._stderr != STDERR:
            os.close(self._stderr)


OUTSIDE = CallWatch([])
"""The watch of calls outside of any run."""
_CURRENT = ContextVar("dsocr_call_watch", default=OUTSIDE)


def current() -> CallWatch:
    """Return the watch of the innermost run, because a run may start another in its process."""
    return _CURRENT.get()


def begin(notes: list[str]) -> CallWatch:
    """Watch a run until :func:`end`. Call it while stderr is not captured, because the last message goes there."""
    stderr = STDERR
    with suppress(OSError):  # there may be none
        stderr = os.dup(STDERR)
    watch = CallWatch(notes, stderr, current())
    _CURRENT.set(watch)
    return watch


def end(watch: CallWatch) -> None:
    """End a run."""
    if watch.outer:
        _CURRENT.set(watch.outer)
    watch.end()


@contextmanager
def watching(notes: list[str]) -> Iterator[CallWatch]:
    """Watch what runs within the context."""
    watch = begin(notes)
    try:
        yield watch
    finally:
        end(watch)


@contextmanager
def at_stage(stage: str, method: str) -> Iterator[None]:
    """Turn whatever the subject's ``method`` raises into a :class:`SubjectFaultError` of ``stage``."""

    def raised(error: BaseException) -> DsocrError:
        return SubjectFaultError(
            stage, f"the subject's {method} raised in {stage} ({brief(error)}); see the error that this one came from"
        )

    with guarded(stage, method, raised):
        yield


@contextmanager
def guarded(stage: str, method: str, raised: Callable[[BaseException], DsocrError]) -> Iterator[None]:
    """Run the subject's code: limit its time, undo its side effects, and turn its errors by ``raised``.

    Raises:
        SubjectHungError: if its time is up.
        NotOfferedError: if the subject raises it to offer less.
        KeyboardInterrupt: if the user interrupts the run.
    """
    watch, what = current(), f"the subject's {method} in {stage}"
    limit_s = watch.limit_s(stage)
    try:
        with watch.surroundings.preserved(method, quickly=stage == "decode"), watch.limited(what, limit_s):
            try:
                yield
            except (Overdue, SubjectFaultError, NotOfferedError, KeyboardInterrupt):
                raise
            except BaseException as error:
                fault = raised(error)
                raise fault from (error if fault is not error else error.__cause__)
    except Overdue as overdue:
        raise hung(stage, method, limit_s, is_start=stage == LOAD) from overdue


def refusal(what: str, advice: str) -> Callable[[BaseException], DsocrError]:
    """Return a function from an error of loading to a ``DsocrError`` with advice; a ``DsocrError`` stays itself."""
    return lambda error: error if isinstance(error, DsocrError) else DsocrError(f"{what} ({brief(error)}); {advice}")


def hung(stage: str, method: str, limit_s: float, *, is_start: bool = False) -> SubjectHungError:
    """Return the fault of a call that took too long; raise it from the interrupted stack."""
    option = "start-limit" if is_start else "subject-time-limit"
    return SubjectHungError(
        stage,
        f"the subject's {method} did not return in {stage} within {limit_s:g} s and was interrupted; if it was only "
        f"slow, raise the limit: --dsocr-{option}=SECONDS",
    )
