"""How long a search may take: in CPU seconds, so that it comes as far on a busy machine as on an idle one."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
WALL_FOR_CPU = 10
"""A search that is given no more of a CPU than one part in so many ends all the same, so that no run hangs."""


class Deadline:
    """The end of a search.

    Args:
        budget_s: CPU seconds of the thread that searches. Threads that help it are not counted: they wait for work
            most of the time, and more cores must not mean a shorter search.
        cpu: the clock of these seconds.
        wall: the clock on the wall.
    """

    def __init__(self, budget_s: float, cpu: Clock = time.thread_time, wall: Clock = time.monotonic) -> None:
        self._cpu, self._wall = cpu, wall
        self._cpu_s, self._wall_s = cpu() + budget_s, wall() + longest(budget_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be started."""
        return self._cpu() > self._cpu_s or self._wall() > self._wall_s


def longest(budget_s: float) -> float:
    """Return how many seconds a search may take by the clock on the wall."""
    return budget_s * WALL_FOR_CPU
