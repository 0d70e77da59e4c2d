"""Time of this process by part: start, collection, tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.base.elapsed import Elapsed
from pytest_dsocr.plugin.stash import CASES, CONFIG, ELAPSED
from pytest_dsocr.report.parts import COLLECTING, STARTING, TESTS, WAITING

if TYPE_CHECKING:
    from pytest_dsocr.report.worker_report import ProcessTimes


class RunElapsed(Elapsed):
    """Clock of pytest's own work: collection, tests by suite, and the time between them."""

    def __init__(self) -> None:
        super().__init__(STARTING)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Count the collection of tests."""
        with self.on(COLLECTING):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Count the time between tests."""
        with self.on(WAITING):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count a test for its suite."""
        folder = item.path.parent
        is_ours = folder.parent.name == "suites"
        with self.on(f"{TESTS} of {folder.name}" if is_ours else TESTS):
            return (yield)


def elapsed_so_far(config: pytest.Config) -> ProcessTimes:
    """Return the elapsed time of this process by part, its worker and its device."""
    from pytest_dsocr.report.worker_report import ProcessTimes

    elapsed = config.stash[ELAPSED]
    elapsed.settle()
    return ProcessTimes(
        worker=getattr(config, "workerinput", {}).get("workerid", ""),
        device=config.stash[CONFIG].device,
        cases=len(config.stash.get(CASES, {})),
        elapsed_s=elapsed.elapsed_s,
        seconds=dict(elapsed.seconds),
    )
