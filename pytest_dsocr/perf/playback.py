"""Rounds that were taken already, played to pytest-benchmark, which times what it calls by a clock of one's choice."""

from __future__ import annotations

from collections.abc import Sequence


class Playback:
    """A clock that moves only when a round is played.

    Args:
        times_ms: those of the rounds, in turn.
    """

    def __init__(self, times_ms: Sequence[float]) -> None:
        self._left = list(times_ms)
        self._now_s = 0.0

    def now(self) -> float:
        """Give the clock's seconds."""
        return self._now_s

    def play(self) -> None:
        """Move on by the next round."""
        self._now_s += self._left.pop(0) / 1e3
