"""Changes of the process that a test must not leave to later tests."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from _pytest.pytester import SysModulesSnapshot

from pytest_dsocr.subjects.surroundings import ALL, Surrounding

IMPORTED_ANEW = ("dsocr_vendor_code", "__triton_launcher")
"""Modules that come and go: the vendor's code from each folder, and Triton's launchers of kernels."""


def _handlers() -> dict[str, Any]:
    return {str(number): signal.getsignal(number) for number in signal.valid_signals()}


def _root_logger() -> tuple[object, ...]:
    return logging.root.level, *(one for one in logging.root.handlers if not type(one).__module__.startswith("_pytest"))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    return ", ".join(name for name in before if before[name] != after[name])


def _leave(_value: object) -> None:
    """Do nothing: a test that leaves something fails."""


STATE = (
    *ALL,
    Surrounding("the signal handlers", _handlers, _leave, _changed),
    Surrounding("the root logger", _root_logger, _leave),
)
"""Parts of the process to compare, without seeds, which each test sets."""
THREADS = "the threads that a process waits for"


class OwnModulesSnapshot(SysModulesSnapshot):
    """Snapshot that lets ``pytester`` remove only its own modules; torch and numpy cannot be imported twice."""

    folder: str

    def __init__(self, preserve: object = None) -> None:
        known = {*sys.modules}
        super().__init__(lambda name: name not in known and not file_of(sys.modules[name]).startswith(self.folder))


def file_of(module: ModuleType) -> str:
    path = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    return str(path)


def state() -> dict[str, Any]:
    values = {one.name: one.get() for one in STATE}
    values["the environment"].pop("PYTEST_CURRENT_TEST", None)
    threads = {thread.name for thread in threading.enumerate() if not thread.daemon}
    return values | {THREADS: {name for name in threads if not name.startswith("pytest_timeout")}}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if more := after[THREADS] - before[THREADS]:
        yield f"{THREADS}: {', '.join(more)}"
    for one in STATE:
        if (found := before[one.name]) not in (None, left := after[one.name]):
            yield f"{one.name}: {one.describe(found, left)}"


def lost(before: Mapping[str, ModuleType]) -> list[str]:
    """Return the modules that were removed or replaced in ``sys.modules``, without a test's own."""
    gone = {name: module for name, module in before.items() if sys.modules.get(name) is not module}
    own = OwnModulesSnapshot.folder
    return sorted(
        name for name, of in gone.items() if not name.startswith(IMPORTED_ANEW) and not file_of(of).startswith(own)
    )
