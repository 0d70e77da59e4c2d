"""State between pages as a cause: a page gives another result when it is read again."""

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_dsocr.compare.readings import STATE
from pytest_dsocr.compare.verdict import Symptom, Verdict
from pytest_dsocr.describe.description import OF_STATE
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.cause import FailureCause
from pytest_dsocr.report.order import OF_TEXT, is_of_model, rank
from pytest_dsocr.report.outcomes import TestResult


def shows_state(test: TestResult) -> bool:
    """Return whether a test read a page twice, with two results."""
    return any(Symptom.STATE in one.signs and one.verdict == Verdict.WRONG for one in test.comparisons)


def knows_state(test: TestResult) -> int:
    """Return how much a test shows of state: 2 if it excludes chance, and 0 if nothing."""
    own = test.sent.cause
    return shows_state(test) * (1 + bool(own and STATE in own.why))


def with_state(
    found: Sequence[FailureCause], cases: Sequence[CaseResult], tests: Mapping[str, TestResult]
) -> list[FailureCause]:
    """Join the causes that may follow from state between pages to one, if a page was read with two results.

    Pages follow from it only if one was right when it was read first.
    """
    shown = [test for test in tests.values() if shows_state(test)]
    seen = next((one for one in cases if one.described and one.described.kind in OF_STATE and not one.passes), None)
    if not shown and seen is None:
        return [*found]
    is_right_first = seen is not None or any(case.passes for case in cases)
    joined = [one for one in found if _may_follow(one, tests, is_right_first=is_right_first)]
    if not joined:
        return [*found]
    first = min(joined, key=lambda one: (not one.cases, rank(one.what)))
    why = seen.described.text if seen and seen.described else _said(shown)
    at = sum((Counter(one.at) for one in joined), Counter[str]())
    whole = FailureCause(
        what=first.what,
        cases=[case for one in joined for case in one.cases],
        of=first.of,
        unit=first.unit,
        why=why,
        proven=False,
        tests=[test for one in joined for test in one.tests],
        described="" if seen or first.what in OF_TEXT else first.described,
        further=first.further,
        at=dict(at),
        is_state=True,
    )
    return [whole, *(one for one in found if one not in joined)]


def _said(shown: Sequence[TestResult]) -> str:
    """Return that a page read again gives another result, and the reason of the test that knows most of it."""
    own = max(shown, key=knows_state).sent.cause
    return ": ".join(filter(None, (Symptom.STATE.sentence, own.why.partition(" ")[2] if own else "")))


def _may_follow(one: FailureCause, tests: Mapping[str, TestResult], *, is_right_first: bool) -> bool:
    """Return whether failures are of results that the model computes, and no mistake is known for them."""
    of = [tests[name] for name in one.tests]
    if any(map(shows_state, of)):
        return True
    is_known = one.proven or any(test.sent.cause is None or test.sent.cause.mistakes for test in of)
    wrong = [what.what for test in of for what in test.comparisons if not what.passes]
    return is_right_first and not is_known and all(map(is_of_model, [one.what] if one.cases else wrong))
