"""What must not pass: nothing compared, sides that could not answer, and what a run promised and did not keep."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import TEST_TEXT, TWO, Repository

FAILED, PASSED = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK
NOTHING = "0 comparisons: nothing was compared, so the run does not pass"
NOTHING_COMPARED = "verdict         no comparison was made"
UNRECORDED = "the recording holds nothing of page-tiny-markdown"
BY_LEVEL = """
    import pytest

    def test_text(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "text")

    @pytest.mark.dsocr_level("L1")
    def test_inputs(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "input_ids")

    @pytest.mark.dsocr_level("L2")
    def test_prefill(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "prefill_best")
"""


def told(result: pytest.RunResult, *patterns: str) -> None:
    result.stdout.fnmatch_lines([pattern.replace("[", "[[]") for pattern in patterns])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("pass", "asked for dsocr_check and compared nothing; call it"),
        ("dsocr_check([])", "dsocr_check was given no comparison"),
        ("dsocr_check(dsocr_report, 'txet')", "dsocr_check knows no stage 'txet'"),
        ("dsocr_check(dsocr_report, 'text'); dsocr_check([])", "dsocr_check was given no comparison"),
    ],
)
def test_a_check_that_compares_nothing_fails(repository: Repository, body: str, why: str) -> None:
    result = repository.run(f"def test_it(dsocr_report, dsocr_check): {body}")
    result.assert_outcomes(failed=1)
    assert why in result.outlines


@pytest.mark.parametrize("body", ["assert dsocr_report.passes", "import pytest; pytest.skip('not today')"])
def test_a_run_that_compares_nothing_fails_though_no_test_does(repository: Repository, body: str) -> None:
    marked = "import pytest\n@pytest.mark.dsocr\n"
    result = repository.run(f"{marked}def test_it(dsocr_report): {body}")
    assert result.parseoutcomes().keys() <= {"passed", "skipped"}
    assert result.ret == FAILED
    told(result, NOTHING, NOTHING_COMPARED)


def test_what_is_not_offered_is_skipped_and_is_no_comparison(repository: Repository) -> None:
    result = repository.run(
        "def test_it(dsocr_report, dsocr_check): dsocr_check(dsocr_report, 'prefill_best', 'tokens')", "-rs"
    )
    result.assert_outcomes(skipped=1)
    assert result.ret == FAILED
    told(
        result, NOTHING, "not offered     L2: prefill_best, tokens", "*prefill_best, tokens: not offered by the subject"
    )


def test_a_run_whose_subject_cannot_be_made_ends_at_once(repository: Repository) -> None:
    repository.settle("Unmade")
    result = repository.run(TWO)
    result.assert_outcomes(errors=1)
    assert result.ret == FAILED
    told(
        result,
        "standin:Unmade could not make its subject (RuntimeError: no weights); see the error it came from",
        "RuntimeError: no weights",
        NOTHING,
        "*dsocr: without its subject nothing can be compared*",
    )


def test_a_reference_that_cannot_answer_is_an_error_and_no_mismatch(repository: Repository) -> None:
    repository.settle(reference="Silent")
    result = repository.run()
    result.assert_outcomes(errors=1)
    assert result.ret == FAILED
    told(result, "the vendor's process ended without a word; look into its log", NOTHING, "ERROR           page-tiny*")
    result.stdout.no_fnmatch_line("*WRONG*")


def test_a_missing_recording_is_not_compared_and_fails(repository: Repository) -> None:
    repository.settle(reference="Unrecorded")
    result = repository.run()
    result.assert_outcomes(errors=1)
    assert result.ret == FAILED
    told(
        result,
        f"NOT-COMPARED: {UNRECORDED}; without the vendor's files, let the session stand in: "
        "--dsocr-reference=session; or declare that it may be missing: --dsocr-may-miss=recording",
        f"missing         recording, needed by 1 test: {UNRECORDED}",
        f"{NOTHING_COMPARED}; 1 of 1 test failed",
    )


def test_one_that_may_be_missing_is_skipped_but_a_run_of_such_alone_fails(repository: Repository) -> None:
    repository.settle(reference="Unrecorded")
    result = repository.run(TEST_TEXT, "-rs", "--dsocr-may-miss", "recording", "--dsocr-no-skip")
    result.assert_outcomes(skipped=1)
    assert result.ret == FAILED
    told(result, NOTHING, f"skipped         recording (allowed), needed by 1 test: {UNRECORDED}", NOTHING_COMPARED)


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        ((), {"passed": 1, "skipped": 3}),
        (("--dsocr-no-skip", "--dsocr-may-miss", "gpu"), {"passed": 1, "skipped": 2, "failed": 1}),
    ],
)
def test_no_skip_turns_skips_into_failures_but_for_what_may_be_missing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], outcomes: dict[str, int]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = repository.run(
        TEST_TEXT
        + """
    import pytest

    @pytest.mark.dsocr_gpu
    def test_on_gpu(dsocr_report): pass

    def test_later(dsocr_report): pytest.skip("not today")

    def test_of_others(): pytest.skip("theirs")
    """,
        *arguments,
    )
    result.assert_outcomes(**outcomes)
    assert result.ret == (FAILED if outcomes.get("failed") else PASSED)
    if outcomes.get("failed"):
        told(result, "skipped, and --dsocr-no-skip is set: not today")


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        ((), {"passed": 1, "skipped": 2}),
        (("--dsocr-level", "L1"), {"errors": 1, "deselected": 1}),
        (("--dsocr-no-skip",), {"passed": 1, "errors": 2}),
        (("--dsocr-no-skip", "--dsocr-level", "L0"), {"passed": 1, "deselected": 2}),
    ],
)
def test_what_is_above_the_subject_is_skipped_and_what_is_above_the_run_is_left_out(
    repository: Repository, arguments: tuple[str, ...], outcomes: dict[str, int]
) -> None:
    result = repository.run(BY_LEVEL, "-rs", *arguments)
    result.assert_outcomes(**outcomes)
    assert result.ret == (FAILED if outcomes.get("errors") else PASSED)
    if outcomes.get("skipped"):
        told(result, "*needs L1 (inputs), the subject offers L0 (text)")


@pytest.mark.parametrize(
    ("subject", "listed", "outcomes"),
    [
        ("Misreader", "test_text[page-tiny-markdown]", {"xfailed": 1, "passed": 1}),
        ("Reader", "test_text[page-tiny-markdown]", {"failed": 1, "passed": 1}),
        ("Misreader", "test_boxes[page-tiny-markdown]", {"failed": 2}),
    ],
)
def test_known_failures_have_to_fail(
    repository: Repository, subject: str, listed: str, outcomes: dict[str, int]
) -> None:
    repository.settle(subject)
    repository.pytester.makefile(".ledger", known=f"{listed}  # since May\ntest_gone  # was there\n")
    result = repository.run(TWO, "--dsocr-xfails", "known.ledger")
    result.assert_outcomes(**outcomes)
    assert result.ret == (FAILED if outcomes.get("failed") else PASSED)
    told(result, "dsocr: known.ledger names test_gone, which is no test of this run")


@pytest.mark.parametrize("reference", ["Silent", "Unrecorded"])
def test_known_failures_hide_no_reference_that_could_not_answer(repository: Repository, reference: str) -> None:
    repository.settle(reference=reference)
    repository.pytester.makefile(".ledger", known="test_text[page-tiny-markdown]  # since May\n")
    result = repository.run(TWO, "--dsocr-xfails", "known.ledger")
    result.assert_outcomes(errors=2)
    told(result, f"{NOTHING_COMPARED}; 2 of 2 tests failed")
