"""Two processes for many trials, each with a thread of its own: torch's further threads would not outlive a fork."""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import torch

PROCESSES = 2


def pool() -> ProcessPoolExecutor:
    """Give a pool of processes that load the session when they are first asked."""
    single = partial(torch.set_num_threads, 1)
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=single)


def cost(started: float) -> str:
    """Say what processes that have ended took since ``started``, a ``time.monotonic()``: seconds, and those of CPU."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{time.monotonic() - started:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
