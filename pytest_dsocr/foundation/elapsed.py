"""Where a process's time goes: seconds by part, each second counted once, for the innermost part that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic


class Elapsed:
    """Seconds by part, since this was made.

    Args:
        part: the one that it begins with.
    """

    def __init__(self, part: str) -> None:
        self.seconds: dict[str, float] = {}
        self.elapsed_s = 0.0
        self._started_s = monotonic()
        self._parts = [part]

    def settle(self) -> None:
        """Count the time up to now."""
        elapsed_s = monotonic() - self._started_s
        self._add(self._parts[-1], elapsed_s - self.elapsed_s)
        self.elapsed_s = elapsed_s

    def move(self, part: str, seconds: float) -> None:
        """Count seconds of the part that is under way as those of another."""
        self._add(part, seconds)
        self._add(self._parts[-1], -seconds)

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count the seconds of what is done within, whether or not it succeeds."""
        self.settle()
        self._parts.append(part)
        try:
            yield
        finally:
            self.settle()
            self._parts.pop()

    def _add(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
