"""The verdict so far, while a run goes on: on a terminal now and then, in a log once, where something is WRONG."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from pytest_dsocr.foundation.words import plain

EVERY_S = 5.0


class SoFar:
    """Writes a line beneath pytest's own progress."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cases: dict[str, bool] = {}
        self._next_s = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the verdict of a case with the first report that carries it: all of the case is compared then."""
        case = (getattr(report, "dsocr", None) or {}).get("case")
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.getplugin("terminalreporter")
        if case is None or case["id"] in self._cases or reporter is None or self._config.get_verbosity() < 0:
            return
        is_first_wrong = case["verdict"] == "WRONG" and all(self._cases.values())
        self._cases[case["id"]] = case["verdict"] != "WRONG"
        is_tty: Any = reporter.isatty  # a bool under pytest 8.2, a method under 9
        if not is_first_wrong and (not (is_tty() if callable(is_tty) else is_tty) or monotonic() < self._next_s):
            return
        self._next_s = monotonic() + EVERY_S
        wrong = len(self._cases) - sum(self._cases.values())
        broke = f" from {case['first_wrong']} on" if case["first_wrong"] else ""
        line = f"dsocr: {len(self._cases)} compared so far, {wrong} WRONG; {case['id']} is {case['verdict']}{broke}"
        reporter.ensure_newline()
        reporter.write_line(plain(line), red=bool(wrong), green=not wrong)
