"""Seconds of a process by part."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic


class Elapsed:
    """Seconds by part, counted from the start, at first for ``part``."""

    def __init__(self, part: str) -> None:
        self.seconds: dict[str, float] = {}
        self.elapsed_s = 0.0
        self._started_s = monotonic()
        self._parts = [part]

    def settle(self) -> None:
        """Add the time since the last call to the current part."""
        elapsed_s = monotonic() - self._started_s
        self._add(self._parts[-1], elapsed_s - self.elapsed_s)
        self.elapsed_s = elapsed_s

    def move(self, part: str, seconds: float) -> None:
        """Move seconds from the current part to another."""
        self._add(part, seconds)
        self._add(self._parts[-1], -seconds)

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count the seconds inside the context for this part, even if an error ends it."""
        self.settle()
        self._parts.append(part)
        try:
            yield
        finally:
            self.settle()
            self._parts.pop()

    def _add(self, part: str, seconds: float) -> None:
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds
