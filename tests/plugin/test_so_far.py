"""What a run says of its cases while it goes on, and that tests of one case are judged once."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Repository

TERMINAL = """
    def pytest_sessionstart(session):
        session.config.pluginmanager.getplugin("terminalreporter").isatty = lambda: {is_terminal}
"""
TESTS = """
    import pytest

    reports = []

    @pytest.mark.parametrize("again", range(2))
    def test_once(dsocr_report, dsocr_check, again):
        reports.append(dsocr_report)
        assert dsocr_report is reports[0]
        dsocr_check(dsocr_report, "text")

    @pytest.mark.dsocr(boxes=1)
    def test_with_limits_of_its_own(dsocr_report, dsocr_check):
        assert (reports[0].limits.boxes, dsocr_report.limits.boxes) == (0, 1)
        assert dsocr_report.exchange is reports[0].exchange
        dsocr_check(dsocr_report, "text")
"""


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize(("subject", "wrong"), [("Reader", 0), ("Misreader", 1)])
def test_a_case_is_judged_once_and_told_at_once(
    subject: str, wrong: int, is_terminal: bool, repository: Repository
) -> None:
    repository.settle(subject)
    conftest = repository.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + TERMINAL.replace("\n    ", "\n").format(is_terminal=is_terminal))
    result = repository.run(TESTS, "-p", "no:randomly")
    result.assert_outcomes(failed=3 * wrong, passed=3 * (1 - wrong))
    lines = [line for line in result.outlines if line.startswith("dsocr: 1 compared so far")]
    assert [f"{wrong} WRONG" in line for line in lines] == [True] * (is_terminal or wrong)
