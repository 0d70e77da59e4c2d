"""A subject that raises in a run: what is compared all the same, how often the error is told, and how much of it."""

from __future__ import annotations

import json

import pytest

from pytest_dsocr.foundation.errors import message_of, traced
from tests.plugin.conftest import TEST_TEXT, Repository

STAGED = """
import pytest
import torch

import standin
from pytest_dsocr.engine.session import Session
from pytest_dsocr.subjects.session import SessionSubject
from tests.subjects.seen import seen
from tests.subjects.spoilt import Raising, Spoilt

SESSION = Session.from_checkpoint("synthetic:tiny")

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
LOUD = """
import standin

class Loud(standin.Reader):
    def read(self, page, **how):
        raise RuntimeError("no weights")
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
    told = json.loads(repository.pytester.path.joinpath("out", "dsocr.json").read_text())
    by_test = {test["nodeid"].partition("::")[2]: test["outcome"] for test in told["tests"]}
    assert sorted(by_test.values()) == ["error"] * 7 + ["passed"] * 4
    for name, outcome in by_test.items():
        lost = any(one in name for one in ("prefill", "tokens", "text", "artefacts", "without", "reading", "exchange"))
        assert outcome == ("error" if lost else "passed"), name
    [case] = told["cases"]
    assert (case["passes"], case["first_wrong"], case["fault"]["stage"]) == (False, None, "prefill")
    assert len(told["faults"]) == 1
    assert not told["passes"]
    text = result.stdout.str()
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count("RuntimeError: no kernel for prefill\n") == 1
    assert text.count("; shown in full by test_it.py::test_stage") >= 6
    result.stdout.fnmatch_lines(["ERROR           page-tiny-markdown in prefill: the subject's prefill raised*"])
    result.stdout.no_fnmatch_line("*WRONG*")


def test_a_verdict_in_front_of_an_error_is_told_beside_it(repository: Repository) -> None:
    staged(
        repository, "type('Both', (Spoilt,), {'prefill': lambda self, *given: 1 / 0})(SESSION, 'sam.page', torch.nan)"
    )
    result = repository.run(TESTS, apart=True)
    result.stdout.fnmatch_lines(
        [
            "sam.page: 6 NaN of * values, the first at [[]0, 0, 0, 2]; the reference is finite",
            "ERROR           page-tiny-markdown in prefill: *",
            "WRONG           page-tiny-markdown: sam.page, after 6 comparisons that passed; boxes: unknown *",
        ]
    )


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2", "--dist=load")], ids=["one", "two"])
def test_one_broken_adapter_is_told_once_in_each_worker(repository: Repository, workers: tuple[str, ...]) -> None:
    repository.pytester.makepyfile(loud=LOUD)
    repository.settle()
    presets = "\n ".join(["tiny", "base", "small", "large", "gundam"])
    repository.pytester.makeini(
        f"[pytest]\ndsocr_subject = loud:Loud\ndsocr_pages = page.png\ndsocr_presets = {presets}\n"
    )
    tests = TEST_TEXT + "\n    def test_boxes(dsocr_report, dsocr_check):\n        dsocr_check(dsocr_report, 'boxes')\n"
    result = repository.run(tests, *workers, apart=True)
    result.assert_outcomes(failed=10)
    whole = result.stdout.str().count("Traceback (most recent call last)")
    again = [line for line in result.outlines if "; shown in full by test_it.py::" in line]
    lines = [line for line in again if line.startswith("the subj")]
    assert whole == 1 if not workers else 1 <= whole <= 2
    assert len(lines) == 10 - whole
    assert all("(RuntimeError: no weights)" in line for line in lines)


def test_other_errors_are_told_whole_each(repository: Repository) -> None:
    repository.settle("Broken")  # it names the page, or whatever else differs
    repository.pytester.path.joinpath("page.png").rename(repository.pytester.path / "one.png")
    repository.pytester.path.joinpath("two.png").write_bytes(repository.pytester.path.joinpath("one.png").read_bytes())
    result = repository.run(TEST_TEXT, "--dsocr-pages=one.png", "--dsocr-pages=two.png")
    assert result.stdout.str().count("Traceback (most recent call last)") == 2


def test_an_error_without_a_message_or_notes_is_named() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not a word")

    class NotedError(Exception):
        @property
        def __notes__(self) -> list[str]:  # type: ignore[override]
            raise RuntimeError("not a note")

    assert "MuteError" in traced(MuteError())
    assert message_of(MuteError()) == "MuteError, whose message cannot be shown"
    assert "NotedError" in traced(NotedError())
