"""Texts by their edit distance, and what is told of one that went astray."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.text import compare_content, compare_text
from pytest_dsocr.compare.verdict import Comparison, Verdict


@pytest.mark.parametrize(
    ("mine", "theirs", "at", "edits", "lines"),
    [
        ("xbc", "abc", 0, "1, 33.33%", ("'xbc'", "'abc'")),
        ("abx", "abc", 2, "1, 33.33%", ("'abx'", "'abc'")),
        ("ab", "abc", 2, "1, 33.33%", ("'ab'", "'abc'")),
        ("abcd", "abc", 3, "1, 33.33%", ("'abcd'", "'abc'")),
        ("", "abc", 0, "3, 100.00%", ("''", "'abc'")),
        ("a\n", "", 0, "2, inf%", (r"'a\n'", "''")),
        ("xb" + "c" * 30, "ab" + "c" * 30, 0, "1, 3.12%", ("'xb" + "c" * 30 + "'", "'ab" + "c" * 30 + "'")),
        (
            "0123456789" * 9 + "x" * 50,
            "0123456789" * 9 + "yz",
            90,
            "50, 54.35%",
            ("'01234567890123456789" + "x" * 37 + "...'", "'01234567890123456789yz'"),
        ),
    ],
)
def test_contents_are_shown_from_shortly_before_they_part(
    mine: str, theirs: str, at: int, edits: str, lines: tuple[str, str]
) -> None:
    measured = (
        f"parts at character {at} of {len(theirs)} (the subject has {len(mine)}); edit distance {edits} (allowed 0.00%)"
    )
    shown = (f"subject   {lines[0]}", f"reference {lines[1]}")
    assert compare_content("result.mmd", mine, theirs, 0.0) == Comparison(
        "result.mmd", Verdict.WRONG, measured, None, shown
    )


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
    assert found.measured.startswith("truncation; parts at character 3 of 6 (the subject has 3); edit distance 3, 50")
    assert found.details == (
        "truncation: it breaks off after 3 of 6 characters, 50%",
        "subject   'abc'",
        "reference 'abcdef'",
    )
    twice = compare_text("abc" + "\ufffd" * 30, "abcdef", 0.0)
    assert twice.measured.startswith("repetition; broken characters; parts at character 3")
    assert [line.partition(":")[0] for line in twice.details[:2]] == ["repetition", "broken characters"]


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
