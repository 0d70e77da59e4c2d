"""Runs that must not pass: nothing was compared, a side could not answer, or a promise was not kept."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.plugin.conftest import TEST_TEXT, TWO, Repository

FAILED, PASSED = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK
NOTHING = "0 comparisons: nothing was compared, so the run does not pass"
NOTHING_COMPARED = "verdict         no comparison was made"
UNRECORDED = "the recording holds nothing of page-tiny-markdown"
CHECKS = "def test_it(dsocr_report, dsocr_check): {}"
MARKED = "import pytest\n@pytest.mark.dsocr\ndef test_it(dsocr_report): {}"
LISTED = "test_text[page-tiny-markdown]"
BY_LEVEL = f"""
    import pytest
    {TEST_TEXT}
    @pytest.mark.dsocr_level("L1")
    def test_inputs(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "input_ids")

    @pytest.mark.dsocr_level("L2")
    def test_prefill(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "prefill_best")
"""
SKIPPED = f"""
    {TEST_TEXT.strip()}

    import pytest

    @pytest.mark.dsocr_gpu
    def test_on_gpu(dsocr_report): pass

    def test_later(dsocr_report): pytest.skip("not today")

    def test_of_others(): pytest.skip("theirs")
"""


class Row(NamedTuple):
    """A run: its tests, what becomes of them, and what it says."""

    tests: str
    outcomes: Mapping[str, int]
    printed: Sequence[str] = ()
    arguments: Sequence[str] = ()
    subject: str = "Reader"
    reference: str = "Reference"
    status: int = FAILED


ROWS = {
    "no check is made": Row(CHECKS.format("pass"), {"failed": 1}, [NOTHING]),
    "a check of nothing": Row(CHECKS.format("dsocr_check([])"), {"failed": 1}, [NOTHING]),
    "and a check of nothing": Row(CHECKS.format("dsocr_check(dsocr_report, 'text'); dsocr_check([])"), {"failed": 1}),
    "a stage that there is not": Row(
        CHECKS.format("dsocr_check(dsocr_report, 'txet')"),
        {"failed": 1},
        ["dsocr_check knows no stage 'txet'", "* vision_fusion, prefill, prefill_best*"],
    ),
    "an assert alone": Row(MARKED.format("assert dsocr_report.passes"), {"passed": 1}, [NOTHING, NOTHING_COMPARED]),
    "a skip alone": Row(MARKED.format("import pytest; pytest.skip('not today')"), {"skipped": 1}, [NOTHING]),
    "not offered": Row(
        CHECKS.format("dsocr_check(dsocr_report, 'prefill_best', 'tokens')"),
        {"skipped": 1},
        [NOTHING, "not offered     L2: prefill_best, tokens"],
    ),
    "a subject that cannot be made": Row(
        TWO,
        {"errors": 1},
        ["RuntimeError: no weights", NOTHING, "*dsocr: without its subject nothing can be compared*"],
        subject="Unmade",
    ),
    "a reference that cannot answer": Row(
        TEST_TEXT,
        {"errors": 1},
        ["the vendor's process ended without a word*", NOTHING, "ERROR test_it.py::*"],
        reference="Silent",
    ),
    "not recorded": Row(
        TEST_TEXT,
        {"errors": 1},
        [
            f"NOT-COMPARED: {UNRECORDED}; *--dsocr-reference=engine; *--dsocr-allow-missing=recording",
            f"missing         recording, needed by 1 test: {UNRECORDED}",
            f"{NOTHING_COMPARED}; 1 of 1 test failed",
        ],
        reference="Unrecorded",
    ),
    "not recorded, which may be, and nothing else": Row(
        TEST_TEXT,
        {"skipped": 1},
        [NOTHING, "skipped         recording (allowed), needed by 1 test: *", NOTHING_COMPARED],
        ["--dsocr-allow-missing", "recording", "--dsocr-no-skip"],
        reference="Unrecorded",
    ),
    "skips": Row(SKIPPED, {"passed": 1, "skipped": 3}, status=PASSED),
    "skips, where only one may be": Row(
        SKIPPED,
        {"passed": 1, "skipped": 2, "failed": 1},
        ["skipped, and --dsocr-no-skip is set: not today"],
        ["--dsocr-no-skip", "--dsocr-allow-missing", "gpu"],
    ),
    "above the subject": Row(
        BY_LEVEL,
        {"passed": 1},
        ["not offered     2 tests need more than text: 1 L1, 1 L2", "*1 passed, 2 not offered in*"],
        status=PASSED,
    ),
    "a level that is promised": Row(BY_LEVEL, {"errors": 1, "deselected": 1}, (), ["--dsocr-level", "L1"]),
    "above the subject, which may not be": Row(BY_LEVEL, {"passed": 1, "errors": 2}, (), ["--dsocr-no-skip"]),
    "above the run": Row(
        BY_LEVEL, {"passed": 1, "deselected": 2}, (), ["--dsocr-no-skip", "--dsocr-level", "L0"], status=PASSED
    ),
    "known": Row(
        TWO,
        {"xfailed": 1, "passed": 1},
        ["dsocr: known.ledger names test_gone, which is no test of this run"],
        ["--dsocr-xfails=known.ledger"],
        subject="Misreader",
        status=PASSED,
    ),
    "known, and passes": Row(TWO, {"failed": 1, "passed": 1}, (), ["--dsocr-xfails=known.ledger"]),
    "known, of a reference that cannot answer": Row(
        TWO, {"errors": 2}, [f"{NOTHING_COMPARED}; *"], ["--dsocr-xfails=known.ledger"], reference="Silent"
    ),
    "known, and not recorded": Row(
        TWO, {"errors": 2}, [f"{NOTHING_COMPARED}; *"], ["--dsocr-xfails=known.ledger"], reference="Unrecorded"
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_run_passes_only_where_all_that_was_promised_was_compared_and_is_right(
    name: str, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    row = ROWS[name]
    repository.settle(row.subject, row.reference)
    repository.pytester.makefile(".ledger", known=f"{LISTED}  # since May\ntest_gone  # was there\n")
    result = repository.run(row.tests, *row.arguments)
    result.assert_outcomes(**row.outcomes)
    assert result.ret == row.status
    result.stdout.fnmatch_lines_random([pattern.replace("[", "[[]") for pattern in row.printed])
    if row.subject == "Reader":
        result.stdout.no_fnmatch_line("*WRONG*")
