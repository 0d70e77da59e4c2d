"""What must be, compared with what was found."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict, as_expected


@pytest.mark.parametrize(
    ("found", "compared"),
    [
        (84, Comparison("cache/length", Verdict.MATCH, "84, the prompt's tokens")),
        (83, Comparison("cache/length", Verdict.WRONG, "83; expected 84, the prompt's tokens")),
        (None, Comparison("cache/length", Verdict.WRONG, "None; expected 84, the prompt's tokens")),
    ],
)
def test_found_and_expected_are_both_told(found: object, compared: Comparison) -> None:
    assert as_expected("cache/length", found, 84, "the prompt's tokens") == compared
    assert compared.stage == "cache"
