"""Compare with what must be so in any case: a number that follows from others, or a rule that always holds."""

from __future__ import annotations

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.foundation.words import shown


def as_expected(what: str, found: object, expected: object, why: str) -> Comparison:
    """Compare what was found with what is expected; ``why`` says in a phrase why it is."""
    found, expected = exact(found), exact(expected)
    if found == expected:
        return Comparison(what, Verdict.MATCH, f"{shown(found)}, {why}")
    return Comparison(what, Verdict.WRONG, f"{shown(found)}; expected {shown(expected)}, {why}")
