"""Seconds that a bench may take, and the seconds that its parts took."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOADING = "loading"
"""Part that the limit does not include."""


class TimeBudget:
    """Limit of seconds, from its creation; loading does not count.

    Seconds are not asked for while a side loads.

    Args:
        seconds: the limit; infinite if there is none.
        clock: the time in seconds.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock, self._started_s = seconds, clock, clock()
        self.spent_s: defaultdict[str, float] = defaultdict(float)
        """Seconds of each part, in the order of their starts."""
        self.reserved_s = 0.0
        """Seconds at the end in which no round is started: they are kept for the parts after the rounds."""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the seconds that are spent within to a part."""
        began_s = self._clock()
        self.spent_s[name] += 0.0
        try:
            yield
        finally:
            self.spent_s[name] += self._clock() - began_s

    @property
    def elapsed_s(self) -> float:
        """Seconds so far that count."""
        return self._clock() - self._started_s - self.spent_s[LOADING]

    @property
    def left_s(self) -> float:
        """Seconds until the limit."""
        return self.seconds - self.elapsed_s

    @property
    def for_rounds_s(self) -> float:
        """Seconds in which rounds may still be started."""
        return self.left_s - self.reserved_s

    @property
    def text(self) -> str:
        """Seconds of each part."""
        limit = "" if math.isinf(self.seconds) else f" (limit {self.seconds:g} s, without loading)"
        return ", ".join(f"{name} {spent_s:.1f} s" for name, spent_s in self.spent_s.items()) + limit
