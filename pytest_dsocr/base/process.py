"""Process and machine: threads, signals, the garbage collector, the commit, versions."""

import ctypes
import gc
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from pytest_dsocr.base.errors import DsocrError


@cache
def freeze_gc() -> None:
    """Exclude all existing objects from garbage collection, once in a process.

    torch alone brings some 200,000 objects. Every full collection visits them: ten at the end of a pytest run, and one
    when the process ends. Call this before you make objects that must be collected later. An older Hypothesis that has
    not run its first test would warn that its random generator is lost, so nothing is frozen then.
    """
    if getattr(sys.modules.get("hypothesis.core"), "_hypothesis_global_random", True) is not None:
        gc.freeze()


GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
TIME_LIMIT_S = 10


def commit_here() -> str | None:
    """Return the commit of the current folder: 40 digits, and ``-dirty`` if files differ. None without one."""
    return commit_of(Path())


def commit_of(folder: Path) -> str | None:
    """Return the commit of a folder, as :func:`commit_here` does."""
    try:
        found = subprocess.run(GIT, cwd=folder, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends. It can be a ``preexec_fn``."""
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_system() -> None:
    """Raise ``DsocrError`` on Windows, which lacks the signals and process groups that this project uses."""
    system = sys.platform
    if system == "win32":
        raise DsocrError("pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL")


THREADS = "OMP_NUM_THREADS"
"""Variable with the number of threads. If the user has set it, it is kept and inherited by child processes."""
IDLE_WAITS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Variables for a process that is not timed: OpenMP's threads sleep while they wait. Spinning threads would slow down
other processes on the same cores."""
Item = TypeVar("Item")
Done = TypeVar("Done")


def cores() -> int:
    """Return how many of the machine's cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_threads(workers: int) -> None:
    """Limit torch to this worker's share of the cores, if a run has several workers."""
    if workers < 2 or THREADS in os.environ:
        return
    share = max(1, cores() // workers)
    os.environ[THREADS] = str(share)
    if torch := sys.modules.get("torch"):  # it has read the environment already
        torch.set_num_threads(share)


def in_threads(work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    """Yield ``work(item)`` for each item, in order, computed in as many threads as torch may use.

    Each of these threads runs torch single-threaded. Only ``work`` that releases the interpreter's lock gets faster.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)  # later threads take over what was set last


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
