"""A lock on a file, between processes: one writer at a time."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pytest_dsocr.foundation.errors import DsocrError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that dies with this process, however it dies.

    Raises:
        DsocrError: where another process holds it, or the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path)
    except OSError as error:
        raise DsocrError(f"{path} cannot be locked ({error.strerror}); give a folder that can be written") from error
    with lock:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}")
        lock.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _acquire(path: Path) -> IO[str]:
    while True:
        lock = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            with lock:
                holder = lock.read() or "another process"
            raise DsocrError(f"{holder} is at work on {path.parent}; wait until it is done, or end it") from None
        if os.fstat(lock.fileno()).st_nlink:
            return lock
        lock.close()  # the holder deleted it between our opening and our locking
