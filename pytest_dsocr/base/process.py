"""This process and its machine: threads, signals, the garbage collector, the commit, the time."""

from __future__ import annotations

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
from typing import TypeVar

from pytest_dsocr.base.errors import DsocrError


@cache
def freeze_gc() -> None:
    """Take all that there is now out of the collector's sight, once in a process.

    torch alone brings some 200,000 objects, which every full collection goes through: ten at the end of a run of
    pytest's, and one as the process ends. To be called before anything is made that has to be collected one day.
    Not where an older Hypothesis has yet to run its first test: it would warn that nothing in sight holds its PRNG.
    """
    if getattr(sys.modules.get("hypothesis.core"), "_hypothesis_global_random", True) is not None:
        gc.freeze()


GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
TIME_LIMIT_S = 10


def commit_here() -> str | None:
    """Return it in 40 digits, ``-dirty`` behind it where files differ from it; None where there is none."""
    try:
        found = subprocess.run(GIT, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have Linux kill this process when the thread that started it ends; for ``preexec_fn`` as well."""
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """End as by Ctrl-C, so that what was made for the run is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_system() -> None:
    """Raise ``DsocrError`` on Windows: time limits, isolation and recordings use signals and groups of processes."""
    system = sys.platform
    if system == "win32":
        raise DsocrError("pytest-dsocr does not run on Windows; run it on Linux or macOS, or in WSL")


THREADS = "OMP_NUM_THREADS"
"""A value that the user set is kept, and passed on to processes started from here."""
IDLE_WAITS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""For a process whose times are not taken: OpenMP's threads sleep while they wait. Where other processes have the
cores as well, spinning threads hold up those that have work."""
Item = TypeVar("Item")
Done = TypeVar("Done")


def cores() -> int:
    """Return how many of the machine's cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_threads(workers: int) -> None:
    """In one of several workers of a run, have torch use this worker's share of the cores."""
    if workers < 2 or THREADS in os.environ:
        return
    share = max(1, cores() // workers)
    os.environ[THREADS] = str(share)
    if torch := sys.modules.get("torch"):  # it has read the environment already
        torch.set_num_threads(share)


def in_threads(work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    """Yield ``work(item)`` for each item, in their order, done in as many threads as torch may use.

    Within one of them torch uses no others. Only ``work`` that releases the interpreter's lock gets faster.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)  # later threads take over what was set last


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return Python's version, and of these packages that of each that is installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
