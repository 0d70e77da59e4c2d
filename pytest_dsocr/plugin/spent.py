"""Where a process's time goes: each side loaded, each side asked, what they said compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.plugin.stash import CONFIG, SPENT

if TYPE_CHECKING:
    from pytest_dsocr.judge.exchange import Exchange
    from pytest_dsocr.report.payload import SpentPayload


class Spent:
    """Seconds by what they were spent on, since this was made; what is left over is pytest's and the tests' own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cases = 0
        self._begun_s = monotonic()

    def add(self, what: str, seconds: float) -> None:
        """Count seconds."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def add_case(self, found: Exchange, seconds: float) -> None:
        """Count the seconds in which both sides were asked about a case and judged; those of drawing are not in it."""
        self.cases += 1
        self.add("subject", found.subject_s)
        self.add("reference", found.reference_s)
        self.add("comparing", max(0.0, seconds - found.subject_s - found.reference_s))

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the seconds of what is done within, whether or not it succeeds."""
        begun_s = monotonic()
        try:
            yield
        finally:
            self.add(what, monotonic() - begun_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this was made."""
        return monotonic() - self._begun_s


def told(config: pytest.Config) -> SpentPayload:
    """Give what this process has spent so far, and on which device."""
    spent = config.stash[SPENT]
    return {
        "worker": getattr(config, "workerinput", {}).get("workerid", ""),
        "device": config.stash[CONFIG].device,
        "cases": spent.cases,
        "elapsed_s": spent.elapsed_s,
        "seconds": dict(spent.seconds),
    }
