"""State of the process that a subject changes, such as the working directory: noticed, reported once, and put back."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

OF_TORCH = ("TORCHINDUCTOR_", "TRITON_")
"""Variables that torch sets for itself, at the first use of what needs them."""
Value = Any


@dataclass(frozen=True)
class Surrounding:
    """A kind of state of the process, such as the working directory."""

    name: str
    get: Callable[[], Value]
    """Returns the value in a comparable form; None if it is unknown."""
    put: Callable[[Value], None]
    describe: Callable[[Value, Value], str] = "from {} to {}".format
    """Describes a change from one value to another."""


class Surroundings:
    """Two sets of state: the subject's own during its calls, and the run's at all other times.

    Args:
        notes: list to which a sentence is added for each change.
    """

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._left: dict[str, Value] = {}
        """Values that the subject set, by name, if they differ from the run's."""
        self._reported: set[str] = set()

    @contextmanager
    def preserved(self, method: str, *, quickly: bool = False) -> Iterator[None]:
        """Restore the state that the subject left behind for its ``method``, and the run's own when it returns.

        Args:
            method: as a note names it.
            quickly: leave out what takes a hundredth of a decode step to read.
        """
        watched = QUICK if quickly else ALL
        before = {one.name: one.get() for one in watched}
        for one in watched:
            if one.name in self._left:
                one.put(self._left[one.name])
        try:
            yield
        finally:
            for one in watched:
                self._put_back(one, before[one.name], method)

    def _put_back(self, one: Surrounding, before: Value, method: str) -> None:
        left, found = one.get(), self._left.pop(one.name, before)
        if before is None:
            return
        if left != found and one.name not in self._reported:
            self._reported.add(one.name)
            what = f"the subject's {method} changed {one.name} {one.describe(found, left)}"
            self._notes.append(f"{what}; the run keeps its own")
        if left != before:
            self._left[one.name] = left
            one.put(before)


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a path is made of it for every step otherwise
    except OSError:  # it was deleted
        return ""


def _enter_folder(folder: str) -> None:
    with suppress(OSError):
        os.chdir(folder)


def _put_path(wanted: Sequence[str]) -> None:
    sys.path[:] = wanted


def _describe_path(before: Sequence[str], after: Sequence[str]) -> str:
    more, less = ([entry for entry in one if entry not in other] for one, other in ((after, before), (before, after)))
    return ", ".join([*(f"+{entry}" for entry in more), *(f"-{entry}" for entry in less)]) or "in its order"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_TORCH)}


def _put_environment(wanted: Mapping[str, str]) -> None:
    for name in _environment().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


def _describe_environment(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    return ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _device_of_torch() -> str | None:
    return str(torch.empty(0).device) if (torch := sys.modules.get("torch")) else None


def _put_device_of_torch(name: str) -> None:
    sys.modules["torch"].set_default_device(None if name == "cpu" else name)


def _of_torch(name: str, get: str, put: str) -> Surrounding:
    """State of torch by the names of two of its functions; it cannot be known before torch is loaded."""
    return Surrounding(
        f"torch's {name}",
        lambda: getattr(torch, get)() if (torch := sys.modules.get("torch")) else None,
        lambda value: getattr(sys.modules["torch"], put)(value),
    )


QUICK = (
    Surrounding("the working directory", _folder, _enter_folder),
    Surrounding("sys.path", lambda: (*sys.path,), _put_path, _describe_path),
    _of_torch("default dtype", "get_default_dtype", "set_default_dtype"),
    Surrounding("torch's default device", _device_of_torch, _put_device_of_torch),
    _of_torch("grad mode", "is_grad_enabled", "set_grad_enabled"),
    _of_torch("precision of float32 products", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    _of_torch(
        "choice of deterministic algorithms", "are_deterministic_algorithms_enabled", "use_deterministic_algorithms"
    ),
    _of_torch("number of threads", "get_num_threads", "set_num_threads"),
)
ALL = (*QUICK, Surrounding("the environment", _environment, _put_environment, _describe_environment))
"""All that the run's own code depends on. Seeds are left, for to put them back would change what the subject does."""
