"""One failure of each break in full: pytest's terminal leaves out the tests that failed behind it, and counts them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_dsocr.plugin.run import Run

FAILED = "failed"


class Folded:
    """Leaves out what pytest itself writes of these tests; other plugins see every failure."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failed: list[pytest.TestReport] = []
        """All of them, while some are left out."""

    @pytest.hookimpl(specname="pytest_terminal_summary", wrapper=True, tryfirst=True)
    def pytest_around_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, Any, Any]:
        """Leave them out of pytest's failures; behind its list of them, tell where it first broke, and why."""
        self._fold(terminalreporter)
        done = yield
        self._unfold(terminalreporter)
        if summary := self._run.summary:
            summary.show_breaks(terminalreporter)
        return done

    @pytest.hookimpl(specname="pytest_terminal_summary", wrapper=True, trylast=True)
    def pytest_within_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, Any, Any]:
        """Put them back while others write, and leave them out of pytest's list."""
        self._unfold(terminalreporter)
        done = yield
        self._fold(terminalreporter)
        return done

    def _fold(self, reporter: pytest.TerminalReporter) -> None:
        self._failed = reporter.stats.get(FAILED, [])
        if self._failed and self._run.summary:
            behind = self._run.summary.behind
            reporter.stats[FAILED] = [one for one in self._failed if one.nodeid not in behind]

    def _unfold(self, reporter: pytest.TerminalReporter) -> None:
        if self._failed:
            reporter.stats[FAILED] = self._failed
