"""The cases of a run: judged by their own tests, and grouped by where they break first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.explain.hints import agreed
from pytest_dsocr.foundation.words import count
from pytest_dsocr.report.outcomes import FAILING, TestResult
from pytest_dsocr.report.payload import CasePayload
from pytest_dsocr.report.words import likely_cause


class Outside(TypedDict):
    """A comparison beyond the run's own limits in a case whose tests passed."""

    what: str
    verdict: str
    measured: str
    allowed_by: list[str]
    """The tests whose own limits allow it; empty where no test of the run checks it."""


class JudgedCase(CasePayload):
    """A case: ``passes`` is the verdict of its tests, ``within`` that of the run's own limits."""

    within: bool
    outside: list[Outside]
    """Comparisons beyond the run's own limits, though the case passes."""
    failed: list[str]
    """Its tests that failed."""


def judged_by_tests(case: CasePayload, tests: Sequence[TestResult]) -> JudgedCase:
    """Judge a case by its tests; where none of them compared anything, as it was judged under the run's own limits."""
    failed = [test.nodeid for test in tests if test.outcome in FAILING]
    judged = any(test.comparisons for test in tests)
    passes = not failed and (judged or case["passes"])
    outside = [
        Outside(
            what=one["what"], verdict=one["verdict"], measured=one["measured"], allowed_by=_allowing(one["what"], tests)
        )
        for one in case["comparisons"]
        if not one["passes"]
    ]
    within = case["passes"]
    return {**case, "passes": passes, "within": within, "outside": outside if passes else [], "failed": failed}


def _allowing(what: str, tests: Sequence[TestResult]) -> list[str]:
    return [test.nodeid for test in tests if any(one["what"] == what and one["passes"] for one in test.comparisons)]


FIRST_BROKE = "first broke"
NO_BOXES = "no page has a box on either side: that boxes match shows nothing; add a page that has some"


class Break(TypedDict):
    """The cases that break first at the same comparison, of their crops or of a page that is not cut."""

    what: str
    """The comparison."""
    cases: list[str]
    of: int
    """How many cases the run has."""
    unit: str
    """What they are: ``page`` where each is of another page, else ``case``."""
    why: str
    """What gives the same at ``what``, where that is proven; else what to check."""
    proven: bool
    tests: list[str]
    """The tests that failed over comparisons of these cases, first the one to read."""


def breaks_of(cases: Sequence[JudgedCase], failing: Sequence[TestResult]) -> list[Break]:
    """Group failing cases by the comparison that each breaks first at, the largest group first."""
    by_what: dict[str, list[JudgedCase]] = {}
    for case in cases:
        if case["first_wrong"] and not case["passes"]:
            by_what.setdefault(case["first_wrong"], []).append(case)
    for what in list(by_what):
        page = of_whole_page(what)
        if what != page in by_what and all(_is_wrong(page, case) for case in by_what[what]):
            by_what[what] += by_what.pop(page)  # pages that are not cut have no crops to break at
    unit = "page" if len({case["page"] for case in cases}) == len(cases) else "case"
    found = [_break(what, broken, failing, cases, unit) for what, broken in by_what.items()]
    return sorted(found, key=lambda one: -len(one["cases"]))


def break_in_words(one: Mapping[str, Any]) -> str:
    """Say where it broke, in how many cases, and why."""
    where = f"{one['what']} in {len(one['cases'])} of {count(one['of'], one['unit'])}"
    why = one["why"] if one["proven"] or not one["why"] else f"check {one['why']}"
    return f"{where}: {why}{' (proven)' * one['proven']}" if why else where


def failed_behind(one: Mapping[str, Any]) -> str:
    """Say how many tests fail behind the first; nothing where there is none."""
    more = len(one["tests"]) - 1
    return f"{count(more, 'more test')} failed behind it" if more > 0 else ""


def remarks(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield what the cases as a whole do not show, a sentence each."""
    if cases and all(case["boxes"] == {"reference": 0, "subject": 0} for case in cases):
        yield NO_BOXES


def _is_wrong(what: str, case: JudgedCase) -> bool:
    return any(one["what"] == what and one["verdict"] == Verdict.WRONG for one in case["comparisons"])


def _break(
    what: str, broken: Sequence[JudgedCase], failing: Sequence[TestResult], cases: Sequence[JudgedCase], unit: str
) -> Break:
    """Make one; its cause is that of the case which says most about it."""
    first, proven = _explained(broken, cases)
    compared = {case["id"]: {one["what"] for one in case["comparisons"]} for case in broken}
    wrong = {
        test.nodeid: (test.case_id, found)
        for test in failing
        if (found := {one["what"] for one in test.comparisons if one["verdict"] == Verdict.WRONG})
        and found <= compared.get(test.case_id or "", set())
    }
    tests = sorted(wrong, key=lambda test: (what not in wrong[test][1], wrong[test][0] != first["id"], test))
    return {
        "what": what,
        "cases": [case["id"] for case in broken],
        "of": len(cases),
        "unit": unit,
        "why": likely_cause(first) if proven else _hint(what, broken, cases),
        "proven": proven,
        "tests": tests,
    }


def _explained(broken: Sequence[JudgedCase], cases: Sequence[JudgedCase]) -> tuple[JudgedCase, bool]:
    """Return the case that is explained best, and whether what it names is proven.

    Of texts it is the one with which most pages were tried, right ones as well. Where these are not all, as workers
    try each their own, every other page must leave what it names.
    """
    texts = [case for case in cases if case["tried_on"] and (case in broken or case["passes"])]
    if not texts:
        first = max(broken, key=lambda case: (case["proven"], bool(case["explained"])))
        return first, first["proven"]
    last = max(texts, key=lambda case: case["tried_on"])
    agree = all({*last["mistakes"]} <= {*case["mistakes"]} for case in texts)
    return last, last["proven"] and (agree or last["tried_on"] == len(cases))


def _hint(what: str, broken: Sequence[JudgedCase], cases: Sequence[JudgedCase]) -> str:
    """Return what the hints of the cases have in common, and of a text whether pages without crops are right."""
    hints = [case["cause"] or "" for case in broken]
    common = agreed(hints) or (hints[0] and f"{hints[0]} ({broken[0]['id']})")
    right = [case for case in cases if case["passes"]]
    if what == "text" and right and all(map(_is_cut, broken)) and not any(map(_is_cut, right)):
        return f"{common}; the pages without crops are right"
    return common


def _is_cut(case: JudgedCase) -> bool:
    """Return whether the page has crops; where it has none, the tensor is of zeros in float32."""
    return not case["shapes"]["reference"].get("images_crop", "float32").startswith("float32")
