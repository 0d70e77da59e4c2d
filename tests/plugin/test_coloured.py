"""What pytest shows of a failure: the finding in its short summary, and diffs in colours where the terminal has any."""

from __future__ import annotations

import re

import pytest

from pytest_dsocr.report.file import read_result
from tests.plugin.conftest import TEST_TEXT, Repository

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
RED, GREEN, END = "\x1b[31m", "\x1b[32m", "\x1b[0m"
LEGEND = "[-only in the reference-] {+only in the subject+}"
FOUND = "text: edit distance 2, 3.51% (allowed 0.00%), from character 54 of 57 on"


@pytest.fixture
def misread(repository: Repository) -> Repository:
    """One whose subject reads a word wrong."""
    repository.settle("Misreader")
    return repository


def shown(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "Minuets" in line]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=["here", "in a worker"])
def test_a_diff_is_coloured_where_the_terminal_is(misread: Repository, workers: tuple[str, ...]) -> None:
    result = misread.run(TEST_TEXT, "--color=yes", *workers, apart=True)
    [line] = shown(result)
    assert f"{RED}[-Minutes-]{END}{GREEN}{{+Minuets+}}{END}" in line
    assert any(ESCAPES.sub("", line) == f"diff            {LEGEND}" != line for line in result.outlines)


def test_without_colours_a_diff_has_marks(misread: Repository) -> None:
    result = misread.run(TEST_TEXT, "--color=no", "--junitxml=junit.xml")
    [line] = shown(result)
    assert line.endswith("[-Minutes-]{+Minuets+}")
    assert f"diff            {LEGEND}" in result.outlines
    assert "[-Minutes-]{+Minuets+}" in misread.pytester.path.joinpath("junit.xml").read_text(encoding="utf-8")


def test_no_color_is_heard(misread: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    result = misread.run()
    assert "\x1b" not in result.stdout.str()
    assert len(shown(result)) == 1


def test_what_a_model_writes_is_no_escape(misread: Repository) -> None:
    misread.pytester.makepyfile(
        steering="import standin\nclass Steers(standin.Reader): text = standin.TEXT + '\\x1b[31mword'"
    )
    result = misread.run(TEST_TEXT, "--dsocr-subject=steering:Steers", "--color=no")
    assert "\x1b" not in result.stdout.str()
    assert r"{+\x1b[31mword+}" in result.stdout.str()


def test_the_short_summary_begins_with_the_finding(misread: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = misread.run(TEST_TEXT, "-q")
    test = "test_it.py::test_text[page-tiny-markdown]"
    assert f"FAILED {test} - Failed: {FOUND}" in result.outlines


@pytest.mark.parametrize("style", ["line", "no"])
def test_every_style_of_tracebacks_is_shown(misread: Repository, style: str) -> None:
    result = misread.run(TEST_TEXT, f"--tb={style}")
    assert (FOUND in result.stdout.str()) is (style != "no")
    result.assert_outcomes(failed=1)


def test_an_error_in_words_is_in_the_short_summary_as_well(
    misread: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    misread.settle("Broken")
    result = misread.run(TEST_TEXT, "-q", "--tb=line")
    assert "- the subject's read raised in read (ValueError: no kernel for page.png)" in result.outlines[-2]
    assert any(line.startswith("test_it.py:1: the subject's read raised") for line in result.outlines)


def test_what_breaks_first_names_a_test_of_this_run_or_none(misread: Repository) -> None:
    boxes = "\n    def test_artefacts(dsocr_report, dsocr_check):\n        dsocr_check(dsocr_report, 'boxes')\n"
    misread.pytester.makepyfile(both="import standin\nclass Both(standin.Misreader):\n    text = 'Minuets, no boxes'")
    before = "this comes before what this test compares"
    result = misread.run(TEST_TEXT + boxes, "--dsocr-subject=both:Both", "--dsocr-out=out", "-v", "-p", "no:randomly")
    assert f"{'':<16}{before}; see test_it.py::test_text[page-tiny-markdown]" in result.outlines
    alone = misread.run(TEST_TEXT + boxes, "--dsocr-subject=both:Both", "-k", "artefacts")
    assert f"{'':<16}{before}, and may be its cause" in alone.outlines
    assert "see test_it.py" not in alone.stdout.str()
    [text, _] = read_result(misread.pytester.path / "out")["tests"]
    assert {side for line in text["comparisons"][0]["diff"] for side, _ in line} == {"both", "reference", "subject"}
