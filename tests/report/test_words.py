"""Words for verdicts, and for where they come from."""

from __future__ import annotations

import pytest

from pytest_dsocr.report.words import BY_SESSION, by_session, counts, first_wrong, reference_in_words
from tests.report.made import case_payload, run_payload


@pytest.mark.parametrize(
    ("right_before", "words"),
    [(0, "the first that was compared"), (1, "after 1 comparison that passed"), (9, "after 9 comparisons that passed")],
)
def test_what_is_wrong_first_is_told_with_what_passed_before_it(right_before: int, words: str) -> None:
    assert first_wrong("clip.page", right_before) == f"clip.page, {words}"


def test_a_drift_is_counted_with_the_largest_error() -> None:
    assert counts({"DRIFT": 2, "MATCH": 1}, 3.2e-7) == "2 DRIFT within 3.2e-07, 1 MATCH"


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
