"""What a suite expects without asking a second side: a number that follows from others, a rule that always holds."""

from __future__ import annotations

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.foundation.words import shown


def as_expected(what: str, found: object, expected: object, why: str) -> Comparison:
    """Compare what was found with what must be, of which ``why`` tells in a phrase where it comes from."""
    found, expected = exact(found), exact(expected)
    if found == expected:
        return Comparison(what, Verdict.MATCH, f"{shown(found)}, {why}")
    return Comparison(what, Verdict.WRONG, f"{shown(found)}; expected {shown(expected)}, {why}")
