"""The ledger of known failures: what it marks, what it reports, and what it refuses."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.plugin.xfails import Known, read_ledger
from tests.plugin.conftest import TEST_TEXT, Repository

TESTS = """
    import pytest

    @pytest.mark.parametrize("case", ["a-gundam", "b/c::d"])
    def test_boxes(case):
        assert case == "b/c::d"

    class TestIt:
        def test_text(self):
            assert False
"""
CONFTEST = """
    from pathlib import Path
    from pytest_dsocr.plugin.xfails import read_ledger

    def pytest_collection_modifyitems(config, items):
        print("unmatched:", read_ledger(Path(__file__).with_name("xfails.txt")).apply(items))
"""


def run(pytester: pytest.Pytester, ledger: str, *arguments: str) -> pytest.RunResult:
    """Run the tests above, in ``suites/parity/test_it.py``, under a ledger."""
    pytester.mkpydir("suites").joinpath("xfails.txt").write_text(ledger)
    pytester.makeconftest(CONFTEST).rename(pytester.path / "suites" / "conftest.py")
    folder = pytester.path / "suites" / "parity"
    folder.mkdir()
    folder.joinpath("__init__.py").touch()
    pytester.makepyfile(test_it=TESTS).rename(folder / "test_it.py")
    return pytester.runpytest_subprocess("-rx", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("listed", "outcomes"),
    [
        ("suites/parity/test_it.py::test_boxes[a-gundam]", {"xfailed": 1, "passed": 1, "failed": 1}),
        ("test_it.py::test_boxes[a-gundam]", {"xfailed": 1, "passed": 1, "failed": 1}),
        ("test_boxes[a-gundam]", {"xfailed": 1, "passed": 1, "failed": 1}),
        ("test_text", {"xfailed": 1, "passed": 1, "failed": 1}),
        ("TestIt::test_text", {"xfailed": 1, "passed": 1, "failed": 1}),
        ("test_boxes[b/c::d]", {"passed": 0, "failed": 3}),
        ("boxes[a-gundam]", {"passed": 1, "failed": 2}),
        ("test_boxes", {"passed": 1, "failed": 2}),
        ("d]", {"passed": 1, "failed": 2}),
        ("", {"passed": 1, "failed": 2}),
    ],
)
def test_listed_tests_are_held_to_fail(pytester: pytest.Pytester, listed: str, outcomes: dict[str, int]) -> None:
    result = run(pytester, f"# known\n\n{listed}  # known since May\n" if listed else "")
    result.assert_outcomes(**outcomes)


def test_the_reason_is_told(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_boxes[a-gundam]  # row 3 is low, see #17 # and more\n")
    result.stdout.fnmatch_lines(
        ["XFAIL suites/parity/test_it.py::test_boxes[[]a-gundam] - row 3 is low, see #17 # and more"]
    )


def test_a_ledger_is_the_same_for_an_installed_package(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert()
    ledger = "suites/parity/test_it.py::test_boxes[a-gundam]  # here\n"
    result = run(pytester, ledger, "--rootdir", str(pytester.mkdir("elsewhere")), "--pyargs", "suites")
    result.assert_outcomes(xfailed=1, passed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL elsewhere/parity/test_it.py::test_boxes[[]a-gundam] - here"])


def test_a_line_whose_date_is_over_excuses_nothing(pytester: pytest.Pytester) -> None:
    lines = "test_boxes[a-gundam]  # until 2020-01-31: row 3 is low\ntest_text  # until 2999-12-31: the vendor's\n"
    result = run(pytester, lines)
    result.assert_outcomes(xfailed=1, passed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL suites/parity/test_it.py::TestIt::test_text - the vendor's"])


def test_the_date_is_the_last_day(tmp_path: Path) -> None:
    path = tmp_path / "xfails.txt"
    path.write_text("test_x  # until 2027-01-31: low\ntest_y  # until the vendor mends it\n", encoding="utf-8")
    ledger = read_ledger(path)
    assert ledger.known == {
        "test_x": Known("low", date(2027, 1, 31)),
        "test_y": Known("until the vendor mends it"),
    }
    assert ledger.over(date(2027, 1, 31)) == []
    [told] = ledger.over(date(2027, 2, 1))
    assert told.startswith("test_x was known to fail until 2027-01-31 (low), and no longer is: mend it, or give ")


def test_a_run_tells_what_is_over_and_fails(repository: Repository, pytester: pytest.Pytester) -> None:
    repository.settle("Misreader")
    (pytester.path / "known.txt").write_text("test_text[page-tiny-markdown]  # until 2020-01-31: low\n")
    result = repository.run(TEST_TEXT, "--dsocr-xfails=known.txt", "--dsocr-out=out")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["noticed *test_text[[]page-tiny-markdown] was known to fail until 2020-01-31 (low)*"])
    assert "was known to fail until" in (pytester.path / "out" / "dsocr.json").read_text(encoding="utf-8")


def test_what_matches_nothing_is_given_back(pytester: pytest.Pytester) -> None:
    result = run(pytester, "test_boxes[a-gundam]  # here\nparity/test_gone.py::test_x  # was there\n")
    result.stdout.fnmatch_lines(["unmatched: ('parity/test_gone.py::test_x',)"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a.py::test_a", "line 1: a.py::test_a has no reason; write one"),
        (b"a.py::test_a  # why\nb.py::test_b  #\n", "line 2: b.py::test_b has no reason; write one"),
        (b"b.py::test_b  #   ", "line 1: b.py::test_b has no reason; write one"),
        (b"a.py::test_a#x", "line 1: a.py::test_a#x has no reason; write one"),
        (b"t[a]  # one\n\nt[a] # two", "line 3: t[a] is listed before; keep one"),
        (b"t[a]  # until May: low", "line 1: 'May' is no date; write one such as until 2027-01-31: reason"),
        (b"t[a]  # until 2027-02-30: low", "'2027-02-30' is no date"),
        (b"t[a]  # until 2027-01-31:", "has no reason"),
        (b"\xff", "is not text in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_ledger_is_refused_in_one_sentence(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "xfails.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DsocrError, match=re.escape(message)):
        read_ledger(path)


def test_ids_may_hold_hashes_and_blanks(tmp_path: Path) -> None:
    path = tmp_path / "xfails.txt"
    path.write_text("  test_x[#1 a-gundam]\t#\tcafé \n", encoding="utf-8")
    assert dict(read_ledger(path).known) == {"test_x[#1 a-gundam]": Known("café")}
