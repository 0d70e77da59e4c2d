"""The failures of a run, grouped by their cause: each cause is shown once in full, with the tests behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.explain.hints import REFUTED, agreed
from pytest_dsocr.foundation.words import count, listed
from pytest_dsocr.report.cases import JudgedCase
from pytest_dsocr.report.outcomes import TestResult
from pytest_dsocr.report.payload import ComparisonPayload
from pytest_dsocr.report.words import likely_cause

Key = tuple[str, ...]
OF_TEST = ("mistake", "check", "raised", "test")
"""The kinds of keys by which a test begins a group; the others find the group of cases that break."""


class Cause(TypedDict):
    """Failures that have one cause, as far as the run shows it; each failing test has one."""

    what: str
    """The comparison that breaks first, or the stage that raised; empty where it is neither."""
    cases: list[str]
    """The cases that break first there; empty where the tests are of none."""
    of: int
    """How many cases the run has."""
    unit: str
    """What they are: ``page`` where each is of another page, else ``case``."""
    why: str
    """What gives the same at ``what``, where that is proven; else what to check, or what was found."""
    proven: bool
    tests: list[str]
    """The tests that failed over it, first the one to read."""


@dataclass(eq=False)
class _Group:
    why: str
    proven: bool = False
    what: str = ""
    cases: list[JudgedCase] = field(default_factory=list)
    first: str | None = None
    """The case to read."""
    tests: dict[str, TestResult] = field(default_factory=dict)


def causes_of(cases: Sequence[JudgedCase], failing: Sequence[TestResult]) -> list[Cause]:
    """Group failing tests by their cause; those of cases in front, and of these the largest first.

    It is the same cause where mistakes that are proven are the same; else where cases break first at the same
    comparison; else where one function of a suite says the same; else each test is its own.
    """
    groups: dict[Key, _Group] = {}
    for what, broken in sorted(_broken(cases), key=lambda one: -len(one[1])):
        first = max(broken, key=lambda case: (case["proven"], bool(case["explained"]), -len(case["explained"] or "")))
        proven = first["proven"] and not any((case["explained"] or "").startswith(REFUTED) for case in broken)
        keys: list[Key] = [("mistake", name) for name in first.get("mistakes", ()) if proven]
        why = likely_cause(first) if proven else _hint(what, broken, cases)
        group = _found(groups, keys) or _Group(why, proven, what, first=first["id"])
        group.cases += broken
        of_cases = [key for case in broken for key in (("case", case["id"]), ("at", what, case["cause"] or ""))]
        groups |= dict.fromkeys([*keys, *of_cases], group)
    for test in sorted(failing, key=lambda test: test.nodeid):
        keys = [*_keys(test)]
        group = _found(groups, keys) or _group_of(test)
        groups |= {key: group for key in keys if key[0] in OF_TEST and key not in groups}
        group.tests[test.nodeid] = test
    unit = "page" if len({case["page"] for case in cases}) == len(cases) else "case"
    found = [_cause(group, len(cases), unit) for group in dict.fromkeys(groups.values())]
    return sorted(found, key=lambda one: (-len(one["cases"]), -len(one["tests"])))


def _found(groups: Mapping[Key, _Group], keys: Sequence[Key]) -> _Group | None:
    return next((groups[key] for key in keys if key in groups), None)


def _broken(cases: Sequence[JudgedCase]) -> Iterator[tuple[str, list[JudgedCase]]]:
    """Yield the failing cases by the comparison that each breaks first at, of its crops or of a page without any."""
    by_what: dict[str, list[JudgedCase]] = {}
    for case in cases:
        if case["first_wrong"] and not case["passes"]:
            by_what.setdefault(case["first_wrong"], []).append(case)
    for what in list(by_what):
        page = of_whole_page(what)
        if what != page in by_what and all(page in _wrong(case["comparisons"]) for case in by_what[what]):
            by_what[what] += by_what.pop(page)  # pages that are not cut have no crops to break at
    yield from by_what.items()


def _wrong(comparisons: Sequence[ComparisonPayload]) -> set[str]:
    return {one["what"] for one in comparisons if one["verdict"] == Verdict.WRONG}


def _keys(test: TestResult) -> Iterator[Key]:
    """Yield what tells the cause of a test, the surest first."""
    case, wrong, own = test.payload.get("case"), _wrong(test.comparisons), test.payload.get("cause")
    if case and wrong and wrong <= {one["what"] for one in case["comparisons"]}:
        yield "case", case["id"]
    if own:
        yield from (("mistake", name) for name in own["mistakes"])
        yield "at", own["what"], own["why"]
        yield "check", test.nodeid.partition("[")[0], own["why"] or test.why
    elif test.is_told:
        yield "raised", _stage(test), test.why
    else:
        yield "test", test.nodeid


def _stage(test: TestResult) -> str:
    fault = test.payload.get("fault")
    return (fault and fault["stage"]) or ""


def _group_of(test: TestResult) -> _Group:
    own = test.payload.get("cause")
    if own is None:
        return _Group(test.why, what=_stage(test))
    proven = bool(own["mistakes"])
    return _Group(own["why"] if proven else f"check {own['why']}" if own["why"] else test.why, proven, own["what"])


def _cause(group: _Group, cases: int, unit: str) -> Cause:
    def last(test: TestResult) -> tuple[bool, bool, bool, str]:
        is_first = group.what in _wrong(test.comparisons)
        return not test.is_told, not is_first, test.case_id != group.first, test.nodeid

    return {
        "what": group.what,
        "cases": [case["id"] for case in group.cases],
        "of": cases,
        "unit": unit,
        "why": group.why,
        "proven": group.proven,
        "tests": [test.nodeid for test in sorted(group.tests.values(), key=last)],
    }


def _hint(what: str, broken: Sequence[JudgedCase], cases: Sequence[JudgedCase]) -> str:
    """Return what the hints of the cases have in common, and of a text whether pages without crops are right."""
    hints = [case["cause"] or "" for case in broken]
    common = agreed(hints) or (hints[0] and f"{hints[0]} ({broken[0]['id']})")
    right = [case for case in cases if case["passes"]]
    if what == "text" and right and all(map(_is_cut, broken)) and not any(map(_is_cut, right)):
        common += "; the pages without crops are right"
    return common and f"check {common}"


def _is_cut(case: JudgedCase) -> bool:
    """Return whether the page has crops; where it has none, the tensor is of zeros in float32."""
    return not case["shapes"]["reference"].get("images_crop", "float32").startswith("float32")


# In words; of a result as JSON values.


def label(one: Mapping[str, Any]) -> str:
    """Return the label of a cause."""
    return "first broke" if one["cases"] else "failed"


def in_words(one: Mapping[str, Any]) -> str:
    """Say where it broke, in how many cases or in which test, and why."""
    if one["cases"]:
        where = f"{one['what']} in {len(one['cases'])} of {count(one['of'], one['unit'])}"
    else:
        function, of = _short(one["tests"][0])
        where = f"{one['what']} of {function}" if one["what"] else f"{function}{of}"
    return f"{where}: {one['why']}{' (proven)' * one['proven']}" if one["why"] else where


def behind(one: Mapping[str, Any], named: int = 0) -> str:
    """Say how many more tests failed behind the first, and which; nothing where there is none."""
    others = one["tests"][1:]
    names = f": {listed([*_named(others)], named)}" if named else ""
    return f"{count(len(others), 'more test')}{names}" if others else ""


def _named(tests: Sequence[str]) -> Iterator[str]:
    """Yield their names; of the same function as the one in front only what is in brackets."""
    functions = [_short(test) for test in tests]
    for (before, _), (function, of) in zip([("", ""), *functions], functions, strict=False):
        yield of if of and function == before else f"{function}{of}"


def _short(test: str) -> tuple[str, str]:
    """Return the function of a test without its folder, and its parameters in their brackets."""
    function, bracket, of = test.partition("[")
    return function.rpartition("/")[2], bracket + of


def by_first(result: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each cause that a test failed over, with the test to read."""
    tests = {test["nodeid"]: test for test in result.get("tests", ())}
    yield from ((one, tests[one["tests"][0]]) for one in result.get("causes", ()) if one["tests"])
