"""Texts by their edit distance, and what is told of one that went astray."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.diff import diff, plain_line
from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.text import compare_content, compare_text
from pytest_dsocr.compare.verdict import Comparison, Verdict


@pytest.mark.parametrize(
    ("mine", "theirs", "measured", "line"),
    [
        ("xbc", "abc", "1, 33.33% (allowed 0.00%), from character 0 of 3 on", "[-abc-]{+xbc+}"),
        ("a x", "a b", "1, 33.33% (allowed 0.00%), from character 2 of 3 on", "a [-b-]{+x+}"),
        (
            "ab ",
            "ab",
            "1, 50.00% (allowed 0.00%), from character 2 of 2 on; the subject has 3",
            "ab{+ +}",
        ),
        (
            "a\n",
            "",
            "2, inf% (allowed 0.00%), from character 0 of 0 on; the subject has 2",
            r"{+a\n+}",
        ),
    ],
)
def test_contents_are_measured_and_shown_where_they_differ(mine: str, theirs: str, measured: str, line: str) -> None:
    found = compare_content("result.mmd", mine, theirs, 0.0)
    assert (found.verdict, found.measured) == (Verdict.WRONG, f"edit distance {measured}")
    assert (found.details, found.diff) == ((), diff(mine, theirs))
    assert [plain_line(one) for one in found.diff] == [line]


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [
        ("abcdefghij", Verdict.MATCH),
        ("abcdefghix", Verdict.DRIFT),
        ("abcdefghi", Verdict.DRIFT),
        ("abcdefghijk", Verdict.DRIFT),
        ("abcdefghxy", Verdict.DRIFT),
        ("abcdefgxyz", Verdict.WRONG),
        ("abcdefghijklm", Verdict.WRONG),
        ("bcdefghija", Verdict.DRIFT),
    ],
)
def test_the_limit_is_a_share_of_the_reference_and_inside(mine: str, verdict: Verdict) -> None:
    assert compare_text(mine, "abcdefghij", 0.2).verdict is verdict
    assert compare_content("result.mmd", mine, "abcdefghij", 0.2).verdict is verdict


@pytest.mark.parametrize("mine", ["", " \n"])
def test_no_text_at_all_is_wrong_under_any_limit(mine: str) -> None:
    assert compare_text(mine, "abc", 5.0).verdict is Verdict.WRONG
    assert compare_text(mine, "\n\n", 5.0).verdict is Verdict.DRIFT
    assert compare_content("result.mmd", mine, "abc", 5.0).verdict is Verdict.DRIFT


def test_against_a_reference_without_text_any_is_wrong() -> None:
    assert compare_text("abc", "", 1e9).verdict is Verdict.WRONG
    assert compare_text("", "", 0.0) == Comparison("text", Verdict.MATCH, "0 characters")


def test_what_went_astray_stands_in_front() -> None:
    found = compare_text("abc", "abcdef", 0.0)
    assert found.measured.startswith("truncation; edit distance 3, 50.00% (allowed 0.00%), from character 3 of 6 on; ")
    assert found.details == ("truncation: it breaks off after 3 of 6 characters, 50%",)
    assert found.signs == {Sign.TRUNCATION}
    assert found.diff == diff("abc", "abcdef")
    twice = compare_text("abc" + "\ufffd" * 30, "abcdef", 0.0)
    assert twice.measured.startswith("repetition; broken characters; edit distance ")
    assert [line.partition(":")[0] for line in twice.details[:2]] == ["repetition", "broken characters"]


def test_what_stands_behind_the_references_end_is_counted() -> None:
    found = compare_text("abcdef and more", "abcdef", 9.0)
    assert (found.verdict, found.signs) == (Verdict.DRIFT, frozenset((Sign.GOES_ON,)))
    assert found.details == ("goes on: it goes on behind the reference's end, for 9 characters",)


def test_of_equal_texts_nothing_is_said() -> None:
    assert compare_text("the " * 99, "the " * 99, 0.0) == Comparison("text", Verdict.MATCH, "396 characters")


PAGE = "0123456789" * 3


@pytest.mark.parametrize(
    ("mine", "told"),
    [
        ("xx" + "y" * 28, "unrelated: it reads something else from character 0 on"),
        ("01" + "abcdefghijklmnopqrstuvwxyz", "unrelated: it reads something else from character 2 on"),
        ("012" + "abcdefghijklmnopqrstuvwxyz", None),
        ("y" * 15 + PAGE[15:], None),
        ("y" * 16 + PAGE[16:], "unrelated: it reads something else from character 0 on"),
        (" ", None),
    ],
    ids=["from the start", "within a tenth", "from a tenth on", "by half", "by more than half", "empty"],
)
def test_a_reading_of_something_else_is_told(mine: str, told: str | None) -> None:
    found = compare_text(mine, PAGE, 0.0)
    assert [line for line in found.details if line.startswith("unrelated")] == ([told] if told else [])
