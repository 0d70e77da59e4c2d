"""Whether the host waits for a GPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_waiting() -> Iterator[None]:
    """Any operation that makes the host wait for the device is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that not every wait is noticed
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
