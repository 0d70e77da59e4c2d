"""Folders that a child process, and all that it starts, cannot read files in: by Landlock, which Linux has since 5.13.

A process gives up rights, and never gets them back. Landlock lists allowed paths only. The list has all entries except
the hidden folders. Files that are made later, directly in a folder above a hidden one, are not on it: the child cannot
read them either.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_dsocr.base.process import LIBC

CREATE, ADD, RESTRICT = 444, 445, 446
"""Numbers of Landlock's system calls, on every processor."""
READ_FILE, PATH_BENEATH, NO_NEW_PRIVILEGES = 1 << 2, 1, 38


class _Rights(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class Hiding:
    """Rules that a child process takes upon itself.

    Args:
        folders: what to hide; those that do not exist are left out.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        hidden = {folder.resolve() for folder in folders if folder.is_dir()}
        self._rules = _made(hidden) if hidden else None
        self.is_in_force = self._rules is not None or not hidden
        """Whether the system hides them."""

    def enter(self) -> None:
        """Give up the right to read them, in this process and in all that it starts; for a ``preexec_fn``."""
        if self._rules is not None and LIBC:
            LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            if LIBC.syscall(RESTRICT, self._rules, 0):
                os._exit(126)  # rather than run with these rights

    def close(self) -> None:
        """Forget the rules; who has taken them upon itself keeps them."""
        if self._rules is not None:
            os.close(self._rules)
            self._rules = None

    def after(self, first: Callable[[], None]) -> Callable[[], None]:
        """Return what calls ``first``, and then enters."""

        def both() -> None:
            first()
            self.enter()

        return both


def _made(hidden: set[Path]) -> int | None:
    """Return a file descriptor of rules; None where the system has no Landlock, or it is switched off."""
    if sys.platform != "linux" or not LIBC:
        return None
    rights = _Rights(READ_FILE)
    rules: int = LIBC.syscall(CREATE, ctypes.byref(rights), ctypes.sizeof(rights), 0)
    if rules < 0:
        return None
    for path in _beside(Path("/"), hidden):
        with suppress(OSError):  # it is gone
            opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            rule = _PathBeneath(READ_FILE, opened)
            LIBC.syscall(ADD, rules, PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(opened)
    return rules


def _beside(folder: Path, hidden: set[Path]) -> Iterator[Path]:
    """Yield the entries around hidden folders that have none below."""
    above = {parent for one in hidden for parent in one.parents}
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry in above:
                yield from _beside(entry, hidden)
            elif entry not in hidden:
                yield entry
