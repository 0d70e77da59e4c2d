"""Describers one by one: an error in one, or the end of the time, costs its own relation and no other."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pytest_dsocr.describe.description import Description

NOT_MEASURED = "could not measure"
"""First words about a describer that failed."""
Found = TypeVar("Found")
Relations = Description | Iterable[Description | None] | None


@dataclass
class Measuring:
    """Errors of the describers of one difference, and the end of their time.

    Args:
        is_over: whether no describer that takes long is to be started.
    """

    is_over: Callable[[], bool] = lambda: False
    lines: list[str] = field(default_factory=list)
    """Sentences to the user: errors, and the end of the time."""

    def add(self, line: str) -> None:
        """Add a sentence, once."""
        if line not in self.lines:
            self.lines.append(line)


class Answer(NamedTuple):
    """Relations that the describers of one difference found."""

    found: tuple[Description, ...]
    lines: tuple[str, ...] = ()
    """Sentences to the user."""


_NOW: ContextVar[Measuring | None] = ContextVar("_NOW", default=None)


@contextmanager
def measuring(now: Measuring) -> Iterator[Measuring]:
    """Let describers note their errors; elsewhere they raise them."""
    token = _NOW.set(now)
    try:
        yield now
    finally:
        _NOW.reset(token)


def measured(describer: Callable[..., Relations], *given: object) -> Iterator[Description]:
    """Yield the relations that a describer finds. An error ends this describer alone, and is noted."""

    def every() -> Iterator[Description]:
        found = describer(*given)
        some = [found] if isinstance(found, Description) else found or ()
        yield from (one for one in some if one is not None)

    return _noting_errors(_name(describer), every())


def measured_in_time(describer: Callable[..., Relations], *given: object) -> Iterator[Description]:
    """Yield the relations that a describer finds which takes long; nothing after the end of the time."""
    return iter(()) if is_time_over() else measured(describer, *given)


def found_by(find: Callable[..., Iterable[Found]], *given: object) -> Iterator[Found]:
    """Yield whatever a part of a describer finds. An error ends this part alone, and is noted."""
    return _noting_errors(_name(find), (one for one in find(*given)))


def _noting_errors(name: str, found: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from found
    except Exception as error:  # any error in a describer
        if _NOW.get() is None:
            raise
        first, *_ = str(error).splitlines() or [""]
        note(f"{NOT_MEASURED} {name}: {type(error).__name__}: {first}; please report this")


def note(line: str) -> None:
    """Note a sentence to the user, such as one from another process.

    Raises:
        RuntimeError: if it is about an error, and nothing takes notes.
    """
    if (now := _NOW.get()) is not None:
        now.add(line)
    elif line.startswith(NOT_MEASURED):
        raise RuntimeError(line)


def is_time_over() -> bool:
    """Return whether describers that take long are to be left out, and note that they are."""
    now = _NOW.get()
    if now is None or not now.is_over():
        return False
    note("a description ended early, because its time was over; --dsocr-explain=SECONDS allows more")
    return True


def _name(describer: Callable[..., object]) -> str:
    describer = getattr(describer, "func", describer)  # of a partial
    return f"{describer.__module__.rpartition('.')[2]}.{getattr(describer, '__qualname__', describer)}"
