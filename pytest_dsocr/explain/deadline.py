"""The end of a search, counted in CPU seconds: a busy machine searches as far as an idle one."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
WALL_FOR_CPU = 10
"""Elapsed seconds after which a search ends, for each CPU second of its budget."""


class Deadline:
    """The end of a search.

    Args:
        budget_s: CPU seconds of the searching thread. Other threads do not count: they mostly wait, and a machine with
            more cores must not search less.
        cpu: clock of CPU seconds.
        wall: clock of elapsed seconds.
    """

    def __init__(self, budget_s: float, cpu: Clock = time.thread_time, wall: Clock = time.monotonic) -> None:
        self._cpu, self._wall = cpu, wall
        self._cpu_s, self._wall_s = cpu() + budget_s, wall() + longest(budget_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be started."""
        return self._cpu() > self._cpu_s or self._wall() > self._wall_s


def longest(budget_s: float) -> float:
    """Return the largest number of elapsed seconds of a search."""
    return budget_s * WALL_FOR_CPU
