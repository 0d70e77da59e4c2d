"""Process state that a subject changes, such as the working directory: noticed, reported once, and put back."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

OF_TORCH = ("TORCHINDUCTOR_", "TRITON_")
"""Variables that torch sets for itself, at the first use of what needs them."""
Value = Any


def _last(now: Value, before: Value, after: Value) -> Value:
    return after


@dataclass(frozen=True)
class Surrounding:
    """One piece of state of the process."""

    name: str
    get: Callable[[], Value]
    """Returns its value, in a form that can be compared; None where it cannot be known."""
    put: Callable[[Value], None] | None
    """Sets the value; None for state that is reported and left as the subject set it."""
    describe: Callable[[Value, Value], str] = "from {} to {}".format
    """Describes a change from one value to another."""
    merge: Callable[[Value, Value, Value], Value] = _last
    """Restores the state the subject left behind: of the current value, and the values before and after its change."""
    is_slow: bool = False
    """Whether reading it takes a hundredth of a decode step, so that it is left out there."""


class Surroundings:
    """The state that is watched in a run: a subject finds its own as it left it, everybody else finds the run's.

    Args:
        notes: takes a sentence about each piece of state that was changed.
    """

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._left: dict[str, tuple[Value, Value]] = {}
        """By name, what the subject changed: the value before, and the value after."""
        self._reported: set[str] = set()

    @contextmanager
    def preserved(self, method: str, *, quickly: bool = False) -> Iterator[None]:
        """Let the subject's ``method`` find the state that it left behind, and put the run's back when it returns.

        Args:
            method: as a note names it.
            quickly: leave out what is slow to read; the next call that is not one of many sees it.
        """
        watched = QUICK if quickly else ALL
        current = {one.name: one.get() for one in watched}
        found = current | {one.name: self._restore(one, current[one.name]) for one in watched if one.name in self._left}
        try:
            yield
        finally:
            for one in watched:
                self._put_back(one, current[one.name], found[one.name], method)

    def _restore(self, one: Surrounding, now: Value) -> Value:
        if one.put is None:
            return now
        wanted = one.merge(now, *self._left[one.name])
        if wanted != now:
            one.put(wanted)
        return wanted

    def _put_back(self, one: Surrounding, before: Value, found: Value, method: str) -> None:
        left = one.get()
        if left != found and found is not None:
            self._left[one.name] = (found, left)
            self._report(one, found, left, method)
        if left != before and one.put and before is not None:
            one.put(before)

    def _report(self, one: Surrounding, found: Value, left: Value, method: str) -> None:
        if one.name not in self._reported:
            self._reported.add(one.name)
            then = "the run keeps its own" if one.put else "it is left so"
            self._notes.append(f"the subject's {method} changed {one.name} {one.describe(found, left)}; {then}")


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - a path is made of it for every step otherwise
    except OSError:  # it was deleted
        return ""


def _enter_folder(folder: str) -> None:
    with suppress(OSError):
        os.chdir(folder)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_TORCH)}


def _put_environment(wanted: Mapping[str, str]) -> None:
    for name in _environment().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


def _merge_environment(now: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> Value:
    gone = before.keys() - after.keys()
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return {name: value for name, value in now.items() if name not in gone} | changed


def _describe_environment(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _put_path(wanted: Sequence[str]) -> None:
    sys.path[:] = wanted


def _merge_path(now: Sequence[str], before: Sequence[str], after: Sequence[str]) -> Value:
    return (*after, *(entry for entry in now if entry not in before and entry not in after))


def _describe_path(before: Sequence[str], after: Sequence[str]) -> str:
    more, less = ([entry for entry in one if entry not in other] for one, other in ((after, before), (before, after)))
    return ", ".join([*(f"+{entry}" for entry in more), *(f"-{entry}" for entry in less)]) or "in its order"


def _lasting_threads() -> tuple[str, ...]:
    return tuple(thread.name for thread in threading.enumerate() if not thread.daemon)


def _torch(name: str, default: Value, get: Callable[[Any], Value], put: Callable[[Any, Value], None] | None) -> Any:
    """State of torch, if that is loaded; until then what it begins with counts."""

    def read() -> Value:
        return get(torch) if (torch := sys.modules.get("torch")) and hasattr(torch, "nn") else default

    return Surrounding(f"torch's {name}", read, partial(_put_torch, put) if put else None)


def _put_torch(put: Callable[[Any, Value], None], value: Value) -> None:
    put(sys.modules["torch"], value)


def _silent(_before: Value, _after: Value) -> str:
    return "(seeded, or drawn from)"


ALL = (
    Surrounding("the working directory", _folder, _enter_folder),
    Surrounding("sys.path", lambda: (*sys.path,), _put_path, _describe_path, _merge_path),
    Surrounding("the environment", _environment, _put_environment, _describe_environment, _merge_environment, True),
    _torch(
        "default dtype",
        "torch.float32",
        lambda torch: str(torch.get_default_dtype()),
        lambda torch, name: torch.set_default_dtype(getattr(torch, name.removeprefix("torch."))),
    ),
    _torch(
        "default device",
        "cpu",
        lambda torch: str(torch.empty(0).device),
        lambda torch, name: torch.set_default_device(None if name == "cpu" else name),
    ),
    _torch("grad mode", True, lambda torch: torch.is_grad_enabled(), lambda torch, on: torch._C._set_grad_enabled(on)),
    _torch(
        "precision of float32 products",
        "highest",
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, name: torch.set_float32_matmul_precision(name),
    ),
    _torch(
        "choice of deterministic algorithms",
        False,
        lambda torch: torch.are_deterministic_algorithms_enabled(),
        lambda torch, on: torch.use_deterministic_algorithms(on),
    ),
    _torch(
        "number of threads",
        None,
        lambda torch: torch.get_num_threads(),
        lambda torch, count: torch.set_num_threads(count),
    ),
    _torch("seed", None, lambda torch: torch.initial_seed(), None),
    Surrounding("the random numbers of Python", random.getstate, None, _silent, is_slow=True),
    Surrounding("the threads that a process waits for at its end", _lasting_threads, None, is_slow=True),
)
"""All that is watched. Seeds and threads are not put back, for that would change what the subject computes."""
QUICK = tuple(one for one in ALL if not one.is_slow)
