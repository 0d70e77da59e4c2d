"""Hands what tests and the run found to pytest's own JUnit file, of which ``user_properties`` are a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.plugin.stash import RUN

if TYPE_CHECKING:
    from pytest_dsocr.plugin.run import Run
    from pytest_dsocr.report.payload import TestPayload


def tell_properties(item: pytest.Item, report: pytest.TestReport, payload: TestPayload, case: str) -> None:
    """Give a test its properties, in the place of those of an earlier phase or try; its later reports have them too."""
    from pytest_dsocr.report.ci import PREFIX, of_test
    from pytest_dsocr.report.outcomes import TestResult, outcome_of

    found = TestResult(item.nodeid, outcome_of(report), payload=payload)
    others = [one for one in item.user_properties if not one[0].startswith(PREFIX)]
    item.user_properties[:] = [*others, *of_test(found, case, item.config.stash.get(RUN, None))]
    report.user_properties = list(item.user_properties)


class RunProperties:
    """Gives the run its properties before pytest writes the file; where no file is written there is nothing to do."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add the properties; pytest-xdist's workers have sent all by now."""
        written = [one for one in session.config.pluginmanager.get_plugins() if hasattr(one, "add_global_property")]
        self._run.take_journal()
        if not written or not self._run.has_told:
            return
        from pytest_dsocr.report.ci import of_run

        self._run.plan.exit_status = int(session.exitstatus)
        for name, value in of_run(self._run.result):
            for xml in written:
                xml.add_global_property(name, value)
