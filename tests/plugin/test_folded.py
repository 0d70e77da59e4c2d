"""One break, one failure in full on the terminal: what failed behind it is counted, and nothing else is hidden."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Repository

TESTS = """
    import pytest

    @pytest.mark.parametrize("time", range(3))
    def test_text(dsocr_report, dsocr_check, time):
        dsocr_check(dsocr_report, "text")

    def test_own(dsocr_report):
        assert dsocr_report.passes, "my own"

    def test_not_ours():
        assert False
"""
OTHER = """
    def pytest_terminal_summary(terminalreporter):
        terminalreporter.write_line(f"another plugin sees {len(terminalreporter.stats['failed'])}")
"""


@pytest.mark.parametrize(("flags", "shown"), [((), 1), (("-v",), 3)], ids=["folded", "verbose"])
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_the_first_failure_of_a_break_is_shown_and_the_others_are_counted(
    repository: Repository, flags: tuple[str, ...], shown: int, workers: tuple[str, ...]
) -> None:
    repository.settle("Misreader")
    with (repository.pytester.path / "conftest.py").open("a") as conftest:
        conftest.write("\n".join(line[4:] for line in OTHER.splitlines()))
    lines = repository.run(TESTS, *flags, *workers, apart=bool(workers)).outlines
    assert sum(line.startswith("rerun  ") for line in lines) == shown
    assert sum(line.startswith("FAILED test_it.py::test_text") for line in lines) == shown
    assert sum(line.startswith("FAILED test_it.py::") for line in lines) == shown + 2
    assert "another plugin sees 5" in lines
    assert " 5 failed" in lines[-1]
    [at] = (k for k, line in enumerate(lines) if line.startswith("first broke     text in 1 of 1 page: check "))
    assert at > max(k for k, line in enumerate(lines) if line.startswith("FAILED "))
    behind = " ".join(" ".join(lines[at:-1]).split())
    assert "; 2 more tests failed behind it" in behind
    assert behind.endswith("shown with -v") is (shown == 1)


def test_a_stage_that_there_is_not_is_answered_with_those_that_there_are(repository: Repository) -> None:
    tests = """
    import pytest

    @pytest.mark.parametrize("stages", [("bokses",), ("text", "sam.cropz"), ("nothing like it",)])
    def test_it(dsocr_report, dsocr_check, stages):
        dsocr_check(dsocr_report, *stages)
    """
    result = repository.run(tests)
    result.assert_outcomes(failed=3)
    assert {line for line in result.outlines if line.startswith("dsocr_check knows")} == {
        "dsocr_check knows no stage 'bokses'; did you mean boxes?",
        "dsocr_check knows no stage 'sam.cropz'; did you mean sam?",  # beside one that there is
        "dsocr_check knows no stage 'nothing like it'",
    }
    assert sum("vision_fusion, prefill, prefill_best" in line for line in result.outlines) == 3
