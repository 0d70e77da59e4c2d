"""A subject that raises in a run: what is compared all the same, how often the error is shown, and how much of it."""

import json
import shutil

from tests.plugin.conftest import TWO, Repository

STAGED = """
import pytest
import torch

import standin
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.session import SessionSubject
from tests.subjects.seen import seen
from tests.subjects.spoilt import Raising

SESSION = Engine.from_checkpoint("synthetic:tiny")

def subject():
    return {subject}

class Reference(standin.Reference):
    def observe(self, case):
        return seen(SESSION, case)

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


def staged(repository: Repository, subject: str) -> None:
    repository.settle()
    repository.pytester.makeconftest(STAGED.format(subject=subject))
    ini = "[pytest]\ndsocr_subject = conftest:subject\ndsocr_checkpoint = synthetic:tiny\ndsocr_pages = page.png\n"
    repository.pytester.makeini(f"{ini}dsocr_presets = tiny\ndsocr_max_new_tokens = 6\n")


def test_tests_of_what_came_before_an_error_pass_and_those_of_what_it_took_are_errors(repository: Repository) -> None:
    staged(repository, "Raising(SESSION, 'prefill')")
    result = repository.run(TESTS, "--dsocr-out=out", "-rA", apart=True)
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
    assert "\nbehind it       6 more tests, shown with -v: test_it.py::" in text, "not shown, and counted"
    result.stdout.fnmatch_lines(["failed          prefill of test_it.py::*: the subject's prefill raised*"])
    result.stdout.no_fnmatch_line("*WRONG*")


def test_errors_that_differ_as_where_they_name_the_page_are_each_reported_in_full(repository: Repository) -> None:
    shutil.copy("page.png", "two.png")
    pages = ("--dsocr-pages=page.png", "--dsocr-pages=two.png")
    result = repository.run(TWO, *pages, "--dsocr-subject=standin:Broken")
    assert result.stdout.str().count("Traceback (most recent call last)") == 2
