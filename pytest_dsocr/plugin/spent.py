"""Where a process's time goes: each side loaded, each side asked, what they said compared, and each suite's tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.plugin.stash import CONFIG, SPENT
from pytest_dsocr.report.times import COLLECTING, STARTING, TESTS, WAITING

if TYPE_CHECKING:
    from pytest_dsocr.cases.exchange import Exchange
    from pytest_dsocr.report.payload import SpentPayload


class Spent:
    """Seconds by what they were spent on, since this was made; each second counts for the innermost part it is in."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cases = 0
        self.elapsed_s = 0.0
        self._began_s = monotonic()
        self._parts = [STARTING]

    def settle(self) -> None:
        """Count the time up to now."""
        elapsed_s = monotonic() - self._began_s
        self._add(self._parts[-1], elapsed_s - self.elapsed_s)
        self.elapsed_s = elapsed_s

    def add_case(self, found: Exchange) -> None:
        """Count a case, and the seconds in which each side was asked as that side's, not the part's around."""
        self.cases += 1
        for side, seconds in (("subject", found.subject_s), ("reference", found.reference_s)):
            self._add(side, seconds)
            self._add(self._parts[-1], -seconds)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the seconds of what is done within, whether or not it succeeds."""
        self.settle()
        self._parts.append(what)
        try:
            yield
        finally:
            self.settle()
            self._parts.pop()

    def _add(self, what: str, seconds: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Count the collecting of tests."""
        with self.on(COLLECTING):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Count what is between tests."""
        with self.on(WAITING):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count a test as its suite's."""
        folder = item.path.parent
        is_ours = folder.parent.name == "suites"
        with self.on(f"{TESTS} of {folder.name}" if is_ours else TESTS):
            return (yield)


def told(config: pytest.Config) -> SpentPayload:
    """Give what this process has spent so far, and on which device."""
    spent = config.stash[SPENT]
    spent.settle()
    return {
        "worker": getattr(config, "workerinput", {}).get("workerid", ""),
        "device": config.stash[CONFIG].device,
        "cases": spent.cases,
        "elapsed_s": spent.elapsed_s,
        "seconds": dict(spent.seconds),
    }
