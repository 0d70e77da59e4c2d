"""How fast the host is just now: the same small work, timed around each lap, whatever the subject is."""

from __future__ import annotations

import time

import torch

CALLS = 150
"""Of one operator on one number; half a millisecond to one and a half."""
MS = 1e-6
"""Milliseconds of a nanosecond."""


class Yardstick:
    """Calls the smallest operator again and again, as a decode step that waits for its launches does.

    Args:
        device: the subject's; on a GPU what is called is launched there, and waited for at the end.
    """

    def __init__(self, device: str) -> None:
        self._number = torch.zeros(1, device=device)

    def host_ms(self) -> float:
        """Do the work once; give the milliseconds that it took."""
        self._wait()
        began = time.perf_counter_ns()
        for _ in range(CALLS):
            self._number.add_(1)
        self._wait()
        return (time.perf_counter_ns() - began) * MS

    def _wait(self) -> None:
        if self._number.is_cuda:
            torch.cuda.synchronize(self._number.device)
