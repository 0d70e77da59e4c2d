"""A run as its controller sees it: every test's result gathered, then told and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.printable import in_shell
from pytest_dsocr.stash import CONFIG, UNMATCHED

if TYPE_CHECKING:
    from pytest_dsocr.report.result import RunResult


class Run:
    """Gathers what tests compared, fails a run that compared nothing, and writes and tells its result."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.own = config, config.stash[CONFIG]
        self.written: list[str] = []
        self._result: RunResult | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test told, here or in a worker."""
        if hasattr(report, "dsocr"):
            self.result.add_report(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run that was there to compare and did not, and write the result."""
        if self._result is None:
            return
        if self._result.why_not and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.own.out:
            from pytest_dsocr.report.index import write_index

            written = (self._result.write(self.own.out), write_index(self._result.to_json(), self.own.out))
            self.written = [str(path) for path in written]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell the result, after the failures and before pytest's closing line."""
        if self._result is not None:
            from pytest_dsocr.report.commands import typed_options
            from pytest_dsocr.report.terminal import Summary

            Summary(self._result, typed_options(self.config), self.written).show(terminalreporter)
        for line in self.config.stash.get(UNMATCHED, []):
            terminalreporter.write_line(
                f"dsocr: {self.own.xfails} names {line}, which is no test of this run", yellow=True
            )

    @property
    def result(self) -> RunResult:
        """What was gathered so far; the module that holds it is loaded with the first test that compares."""
        if self._result is None:
            from pytest_dsocr.report.result import RunResult

            self._result = RunResult(in_shell(["pytest", *map(str, self.config.invocation_params.args)]))
        return self._result
