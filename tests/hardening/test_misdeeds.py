"""A subject misbehaves on one page: the run reports it and continues with the next page, or ends with a reason."""

import json
import shutil

import pytest

from pytest_dsocr.report.file import read_result
from tests.hardening import misdeeds
from tests.plugin.conftest import TEST_TEXT, TWO, Repository

PAGES = ("--dsocr-pages=bad.png", "--dsocr-pages=good.png")
ISOLATE = "--dsocr-isolate"


@pytest.fixture
def settled(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Return a repository with a subject that misbehaves on its first page."""
    shutil.copy(misdeeds.__file__, repository.pytester.path)
    for name in ("good", "bad"):
        shutil.copy(repository.pytester.path / "page.png", repository.pytester.path / f"{name}.png")
    repository.pytester.makeini("[pytest]\ndsocr_subject = misdeeds:Reader\ndsocr_presets = tiny\n")
    monkeypatch.delenv("MISDEED_FILE", raising=False)
    return repository


def run(repository: Repository, misdeed: str, *arguments: str, apart: bool = True) -> pytest.RunResult:
    """Run both pages, in a process of their own where the misdeed may end it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MISDEED", misdeed)
        return repository.run(TEST_TEXT, *PAGES, "--dsocr-out=out", *arguments, apart=apart)


def costs_one_case(result: pytest.RunResult, *reported: str) -> None:
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    for words in reported:
        assert words in text
    assert "INTERNALERROR" not in text
    assert "\x1b" not in text
    assert len(text) < 60_000


@pytest.mark.dsocr_slow
def test_a_hang_costs_one_case(settled: Repository) -> None:
    result = run(settled, "read:sleep", "--dsocr-subject-time-limit=3", "-n", "2")
    costs_one_case(result, "the subject's read did not return in read within 3 s", "misdeeds.py")


@pytest.mark.parametrize("deed", ["skip", "exit", "unspeakable", "many lines", "escapes"])
def test_whatever_it_raises_costs_one_case_and_fits_a_terminal(settled: Repository, deed: str) -> None:
    result = run(settled, f"read:{deed}", apart=False)
    costs_one_case(result, "the subject's read raised in read (", "Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("misdeed", "passed", "message"),
    [
        ("load:system exit", 0, "misdeeds:Reader could not make its subject (*); see the error it came from"),
        ("load:skip", 0, "misdeeds:Reader could not make its subject (*); see the error it came from"),
        ("close:skip", 2, "the subject's close raised in close (*); see the error that this one came from"),
    ],
)
def test_an_error_of_loading_or_closing_is_reported(
    settled: Repository, misdeed: str, passed: int, message: str
) -> None:
    result = run(settled, misdeed, apart=False)
    result.assert_outcomes(passed=passed, errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([message])


@pytest.mark.dsocr_slow
def test_what_is_isolated_is_imported_nowhere_else(settled: Repository) -> None:
    settled.pytester.makepyfile(odd_module="import os; os._exit(0)")
    result = run(settled, "", ISOLATE, "--dsocr-subject=odd_module:Reader")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "odd_module:Reader could not make its subject: it ended with status 0" in result.stdout.str()


@pytest.mark.dsocr_slow
def test_what_it_changes_in_its_own_process_is_reported_once(settled: Repository) -> None:
    run(settled, "read:chdir", ISOLATE).assert_outcomes(passed=2)
    home = settled.pytester.path
    assert [note for note in read_result(home / "out")["notes"] if note.startswith("the subject")] == [
        f"the subject's read changed the working directory from {home} to /; the run keeps its own"
    ]


# One that raises at a stage.

STAGED = """
import pytest
import standin
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.engine import EngineSubject
from tests.subjects.seen import seen
from tests.subjects.spoilt import Raising

ENGINE = Engine.from_checkpoint("synthetic:tiny")

def subject():
    return Raising(ENGINE, "prefill")

class Reference(standin.Reference):
    def observe(self, case):
        return seen(ENGINE, case)

@pytest.fixture(scope="session")
def dsocr_reference():
    return Reference()
"""
TESTS = """
    import pytest

    @pytest.mark.parametrize("stages", ["input_ids", "sam", "vision_fusion", "prefill", "tokens", "text", "artefacts"])
    def test_stage(dsocr_report, dsocr_check, stages):
        dsocr_check(dsocr_report, stages)

    def test_comparisons_without_their_report(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report.of("text"))

    def test_reading(dsocr_reading):
        assert "secret" not in dsocr_reading.text

    def test_exchange(dsocr_exchange):
        assert "secret" not in dsocr_exchange.answer.text

    def test_reference(dsocr_golden):
        assert dsocr_golden.steps
"""


@pytest.mark.dsocr_slow
def test_tests_of_what_came_before_an_error_pass_and_those_of_what_it_took_are_errors(repository: Repository) -> None:
    repository.pytester.makeconftest(STAGED)
    tiny = ("--dsocr-subject=conftest:subject", "--dsocr-checkpoint=synthetic:tiny", "--dsocr-max-new-tokens=6")
    result = repository.run(TESTS, *tiny, "--dsocr-out=out", "-rA", apart=True)
    result.assert_outcomes(passed=4, failed=5, errors=2)
    reported = json.loads(repository.pytester.path.joinpath("out", "dsocr.json").read_text())
    by_test = {test["nodeid"].partition("::")[2]: test["outcome"] for test in reported["tests"]}
    assert sorted(by_test.values()) == ["error"] * 7 + ["passed"] * 4
    for name, outcome in by_test.items():
        lost = any(one in name for one in ("prefill", "tokens", "text", "artefacts", "without", "reading", "exchange"))
        assert outcome == ("error" if lost else "passed"), name
    [case] = reported["cases"]
    assert (case["passes"], case["first_wrong"], case["fault"]["stage"]) == (False, None, "prefill")
    assert [(one["what"], len(one["tests"])) for one in reported["causes"]] == [("prefill", 7)]
    assert not reported["passes"]
    text = result.stdout.str()
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count("RuntimeError: no kernel for prefill\n") == 1
    assert "\nalso failed     6 more tests, shown with -v: test_it.py::" in text, "not shown, and counted"
    result.stdout.fnmatch_lines(["failed          prefill of test_it.py::*: the subject's prefill raised*"])
    result.stdout.no_fnmatch_line("*WRONG*")


def test_errors_that_differ_as_where_they_name_the_page_are_each_reported_in_full(repository: Repository) -> None:
    shutil.copy("page.png", "two.png")
    pages = ("--dsocr-pages=page.png", "--dsocr-pages=two.png")
    result = repository.run(TWO, *pages, "--dsocr-subject=standin:Broken")
    assert result.stdout.str().count("Traceback (most recent call last)") == 2
