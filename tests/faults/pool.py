"""Two processes for many trials, each with a thread of its own: torch's further threads would not outlive a fork."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

import torch

T = TypeVar("T")
PROCESSES = 2


def pool() -> ProcessPoolExecutor:
    """Give a pool of processes that load the session when they are first asked."""
    single = partial(torch.set_num_threads, 1)
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=single)


def cost(started: float) -> str:
    """Say what processes that have ended took since ``started``, a ``time.monotonic()``: seconds, and those of CPU."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{time.monotonic() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"


def as_they_end(works: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Do works in a pool; yield what each gives as it ends. Those left are not begun where one fails or nobody asks."""
    with pool() as processes:
        trials = [processes.submit(work) for work in works]
        try:
            for trial in as_completed(trials):
                yield trial.result()
        finally:
            processes.shutdown(cancel_futures=True)
