"""The ledger of known failures: marks, reports and refusals."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pytest_dsocr.base.errors import DsocrError
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


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    """Return the tests above, as items of ``checks/parity/test_it.py``."""
    folder = pytester.mkpydir("checks") / "parity"
    folder.mkdir()
    folder.joinpath("__init__.py").touch()
    path = pytester.makepyfile(test_it=TESTS).rename(folder / "test_it.py")
    return pytester.inline_genitems(path)[0]


def marked(items: list[pytest.Item], text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the reasons of the tests that a ledger marks, and its lines without a test."""
    Path("xfails.txt").write_text(text, encoding="utf-8")
    unmatched = replace(read_ledger(Path("xfails.txt")), today=date(2026, 11, 23)).apply(items)
    marks = {item.name: item.get_closest_marker("xfail") for item in items}
    assert all(mark.kwargs["strict"] for mark in marks.values() if mark)
    return {name: mark.kwargs["reason"] for name, mark in marks.items() if mark}, unmatched


@pytest.mark.parametrize(
    ("listed", "test"),
    [
        ("checks/parity/test_it.py::test_boxes[a-gundam]", "test_boxes[a-gundam]"),
        ("test_boxes[a-gundam]", "test_boxes[a-gundam]"),
        ("TestIt::test_text", "test_text"),
        ("test_boxes[b/c::d]", "test_boxes[b/c::d]"),
        ("boxes[a-gundam]", None),
        ("test_boxes", None),
        ("parity/test_gone.py::test_x", None),
    ],
)
def test_the_listed_tests_are_marked_and_what_matches_nothing_is_given_back(
    items: list[pytest.Item], listed: str, test: str | None
) -> None:
    why = "row 3 is low, see #17 # and more"
    assert marked(items, f"# known\n\n{listed}  # {why}\n") == (({test: why}, ()) if test else ({}, (listed,)))


def test_the_date_is_the_last_day(tmp_path: Path) -> None:
    path = tmp_path / "xfails.txt"
    path.write_text("test_x  # until 2027-01-31: low\ntest_y  # until the vendor mends it\n", encoding="utf-8")
    ledger = read_ledger(path)
    assert ledger.known == {"test_x": Known("low", date(2027, 1, 31)), "test_y": Known("until the vendor mends it")}
    assert replace(ledger, today=date(2027, 1, 31)).over() == []
    [message] = replace(ledger, today=date(2027, 2, 1)).over()
    assert message.startswith("test_x was known to fail until 2027-01-31 (low), which is over: fix it, or ")


def test_a_run_tells_what_is_over_and_fails(repository: Repository, pytester: pytest.Pytester) -> None:
    repository.settle("Misreader")
    (pytester.path / "known.txt").write_text("test_text[page-tiny-markdown]  # until 2020-01-31: low\n")
    result = repository.run(TEST_TEXT, "--dsocr-xfails=known.txt", "--dsocr-out=out")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["noticed *test_text[[]page-tiny-markdown] was known to fail until 2020-01-31 (low)*"])
    assert "was known to fail until" in (pytester.path / "out" / "dsocr.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a.py::test_a  # why\nb.py::test_b  #\n", "line 2: b.py::test_b has no reason; write one"),
        (b"a.py::test_a#x", "line 1: a.py::test_a#x has no reason; write one"),
        (b"t[a]  # one\n\nt[a] # two", "line 3: t[a] is listed before; keep one"),
        (b"t[a]  # until May: low", "line 1: 'May' is no date; write one such as until 2027-01-31: reason"),
        (b"t[a]  # until 2027-02-30: low", "'2027-02-30' is no date"),
        (b"t[a]  # until 2027-01-31:", "has no reason"),
    ],
)
def test_a_bad_ledger_is_refused_in_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "xfails.txt"
    path.write_bytes(content)
    with pytest.raises(DsocrError, match=re.escape(message)):
        read_ledger(path)
