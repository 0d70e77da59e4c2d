"""Words for counts, paths and text of unknown origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsocr.compare.tolerances import check_tolerance
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.printable import plain
from pytest_dsocr.foundation.traces import traced
from pytest_dsocr.foundation.words import COLUMNS, MARGIN, PACKAGE, count, fit, listed, near, told
from pytest_dsocr.report.words import BY_SESSION, by_session, counts, first_wrong, reference_in_words
from suites.meta.report.made import case_payload, run_payload


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a page", "a page"),
        ("第一页 é", "第一页 é"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\u202egnp.", r"\u202egnp."),
        ("\udc80", r"\udc80"),
    ],
)
def test_nothing_steers_a_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_line_is_cut_at_its_end() -> None:
    assert fit("a" * COLUMNS) == "a" * COLUMNS
    assert fit("a" * (COLUMNS + 1)) == "a" * (COLUMNS - 3) + "..."


def test_paths_inside_this_package_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(str(PACKAGE / "golden" / "vendor")) == "golden/vendor"
    assert near(str(tmp_path.parent)) == str(tmp_path.parent)
    with pytest.raises(DsocrError) as raised:
        check_tolerance("unknown", 1)
    assert 'File "compare/tolerances.py", line' in traced(raised.value)
    assert str(PACKAGE) not in traced(raised.value)


@pytest.mark.parametrize(
    ("right_before", "words"),
    [(0, "the first that was compared"), (1, "after 1 comparison that passed"), (9, "after 9 comparisons that passed")],
)
def test_what_is_wrong_first_is_told_with_what_passed_before_it(right_before: int, words: str) -> None:
    assert first_wrong("clip.page", right_before) == f"clip.page, {words}"


def test_a_drift_is_counted_with_the_largest_error() -> None:
    assert counts({"DRIFT": 2, "MATCH": 1}, 3.2e-7) == "2 DRIFT within 3.2e-07, 1 MATCH"


def test_long_text_goes_on_below_itself_up_to_a_limit() -> None:
    lines = list(told("check", "word " * 100, 3))
    assert [line[:MARGIN].strip() for line in lines] == ["check", "", ""]
    assert all(len(line) <= COLUMNS for line in lines)
    assert lines[-1].endswith("...")
    assert list(told("check", "")) == [f"{'check':<{MARGIN}}"]


@pytest.mark.parametrize(
    ("by_verdict", "words"),
    [
        ({}, ""),
        ({"MATCH": 3}, "3 MATCH"),
        ({"MATCH": 10, "DRIFT": 4, "WRONG": 1, "TIE-FLIP": 2}, "1 WRONG, 2 TIE-FLIP, 4 DRIFT, 10 MATCH"),
        ({"MATCH": 1, "NOT-COMPARED": 2}, "1 MATCH; 2 not made"),
        ({"NOT-COMPARED": 2}, "2 not made"),
    ],
)
def test_verdicts_are_counted_the_gravest_first(by_verdict: dict[str, int], words: str) -> None:
    assert counts(by_verdict) == words


def test_lists_and_counts_read_as_prose() -> None:
    assert [count(0, "case"), count(1, "case"), count(2, "case")] == ["0 cases", "1 case", "2 cases"]
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


@pytest.mark.parametrize(
    ("of_session", "words"),
    [
        ([], ""),
        ([False, False], ""),
        ([True], f", {BY_SESSION}"),
        ([True, False, True], f", 2 of 3 cases {BY_SESSION}"),
        ([False, True], f", 1 of 2 cases {BY_SESSION}"),
    ],
)
def test_a_verdict_says_how_far_it_is_the_sessions(of_session: list[bool], words: str) -> None:
    assert by_session([case_payload(str(k), by_session=one) for k, one in enumerate(of_session)]) == words


@pytest.mark.parametrize(
    ("where", "held"),
    [("", "no recording has this key"), ("golden/a", "golden/a answers for what it holds")],
)
def test_a_reference_by_the_session_is_never_called_the_vendors(where: str, held: str) -> None:
    run = run_payload(reference="session", where=where)
    assert reference_in_words(run) == f"{BY_SESSION}, mini/cpu-float32-eager ({held})"


def test_a_path_is_told_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert near(str(tmp_path / "out" / "a.json")) == "out/a.json"
    assert near("out") == "out"
    assert near("/elsewhere/out") == "/elsewhere/out"
