"""The machine's cores, shared out among the workers of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = "OMP_NUM_THREADS"
"""A value that the user set is kept, and passed on to processes started from here."""
Item = TypeVar("Item")
Done = TypeVar("Done")


def cores() -> int:
    """Give how many of the machine's cores this process may use."""
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
    """Yield what ``work`` gives of each item, in their order, done in as many threads as torch may use.

    Within one of them torch uses no others. Only ``work`` that releases the interpreter's lock gets faster.
    """
    import torch

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)  # later threads take over what was set last
