"""Plugins of others that change a test's outcome, or its report."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository

SECOND_TRY = """
    from pathlib import Path

    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")
        first = not Path("tried").exists()
        Path("tried").touch()
        assert not first
"""
OTHER_OUTCOME = """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if report.when == "call":
            report.outcome = "postponed"
        return report

    def pytest_report_teststatus(report):
        if report.outcome == "postponed":
            return "postponed", "p", "POSTPONED"
"""


def test_what_passed_only_when_run_again_is_flaky(repository: Repository) -> None:
    result = repository.run(SECOND_TRY, "--reruns=2", "--dsocr-out=out", "-n", "2", apart=True)
    assert result.ret == 0
    test = "test_it.py::test_text[[]page-tiny-markdown[]]"
    result.stdout.fnmatch_lines(
        [f"FLAKY           {test}: passed only when run again, after 1 failure", "*passes; 1 test FLAKY"]
    )
    reported = read_result(repository.pytester.path / "out")
    assert reported["flaky"] == ["test_it.py::test_text[page-tiny-markdown]"]
    assert [one["outcome"] for one in reported["tests"]] == ["flaky"]
    assert reported["comparisons"] == 1, "of its last try alone"


def test_an_outcome_that_nobody_knows_is_reported_and_is_no_pass(repository: Repository) -> None:
    both = (CONFTEST.format(reference="Reference"), OTHER_OUTCOME)
    repository.pytester.makeconftest("\n".join(map(dedent, both)))
    result = repository.run(TEST_TEXT, "--dsocr-out=out", apart=True)
    assert "INTERNALERROR" not in result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert json.loads((repository.pytester.path / "out" / "dsocr.json").read_text())["passes"] is False
    result.stdout.fnmatch_lines(["verdict         1 test ended as 'postponed'"])
