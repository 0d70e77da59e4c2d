"""Runs over ties: a subject whose steps are right passes; one that does not read through them fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_dsocr.pages.page_list import shipped

SUBJECTS = """
    from pytest_dsocr.subjects.session import SessionSubject, session_subject


    class Nonsense(SessionSubject):
        def read(self, page, **options):
            return "nonsense"


    def nonsense(setup):
        return Nonsense(session_subject(setup).session)
"""
TESTS = """
    def test_it(dsocr_report, dsocr_check):
        dsocr_check(dsocr_report, "tokens", "read", "text")
"""
PAGES = ("figures_009", "receipt_086")
pytestmark = pytest.mark.usefixtures("warm")
ON_CPU = ("--dsocr-dtype=bfloat16", "--dsocr-reference-dtype=float32")


def tied(pytester: pytest.Pytester, subject: str) -> dict[str, Any]:
    """Run one test in a process of its own; gives the case, of the first page that has a tie with this processor."""
    pytester.makepyfile(test_it=TESTS, planted=SUBJECTS)
    for page in (page for page in shipped("all") if page.stem in PAGES):
        arguments = (f"--dsocr-subject={subject}", f"--dsocr-pages={page}", "--dsocr-out=out", *ON_CPU)
        pytester.runpytest_subprocess(*arguments)
        [case] = json.loads((pytester.path / "out" / "dsocr.json").read_text("utf-8"))["cases"]
        if of(case)["tokens"] == "TIE-FLIP":
            return dict(case)
    pytest.fail("no tie was in this")


def of(case: dict[str, Any]) -> dict[str, str]:
    return {one["what"]: one["verdict"] for one in case["comparisons"]}


def test_what_is_not_read_through_the_steps_fails_after_a_tie_as_well(pytester: pytest.Pytester) -> None:
    case = tied(pytester, "planted:nonsense")
    assert not case["passes"]
    assert of(case)["text"] == of(case)["boxes"] == of(case)["result.mmd"] == "WRONG"


def test_what_its_own_steps_give_after_a_tie_passes(pytester: pytest.Pytester) -> None:
    found = of(tied(pytester, "session"))
    assert "WRONG" not in found.values()
    assert (found["read"], found["text"]) == ("MATCH", "TIE-FLIP")
