"""Findings of tests that belong to a cause and do not follow from it."""

from collections.abc import Iterator, Sequence

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.report.cause import UNKNOWN, FailureCause, function_of
from pytest_dsocr.report.order import CACHE, OF_TEXT, rank, stage_of, wrong_of
from pytest_dsocr.report.outcomes import TestResult

RIGHT = tolerances("float32").usual
"""Largest error of correct implementations in float32: a comparison within it does not show a cause."""
MOST_OWN = 3
"""Number of findings of other tests that are shown with a cause."""


def own_findings(tests: Sequence[TestResult], cause: FailureCause) -> list[str]:
    """Return what tests of suites found that does not follow from the cause: one line of each function."""
    found: dict[str, tuple[bool, int, str]] = {}
    explained = {cause.what, *cause.at, *(one.what for one in cause.further)}
    for test in tests:
        origin = test.sent.cause
        is_explained = origin and (origin.mistakes or (origin.what in explained and origin.what not in OF_TEXT))
        if test.sent.case is None and not is_explained:
            for one in sorted(_found_by(test, cause))[:1]:
                found.setdefault(function_of(test.nodeid)[0], one)
    return [line for *_, line in sorted(found.values())[:MOST_OWN]]


def _found_by(test: TestResult, cause: FailureCause) -> Iterator[tuple[bool, int, str]]:
    """Yield a text's own description, counts of the cache, tensors before the cause, and any after its right tensor.

    Each is its sentence, after two values that sort the most decisive first.
    """
    own, (function, of) = test.sent.cause, function_of(test.nodeid)
    name = f"{function.rpartition('::')[2]}{of}"
    if own and own.what in OF_TEXT and own.described and own.what == cause.what and not cause.proven:
        yield True, rank(own.what), f"also found by {name}: {own.what}: {own.described}"
    right = [one.error for one in test.comparisons if one.what == cause.what and one.passes]
    is_right = any(isinstance(error, float | int) and error <= RIGHT for error in right)
    why = own.why.removeprefix(f"{UNKNOWN}{own.what}").lstrip(":; ") if own else ""
    where = f"; {why or f'{cause.what} is right there'}" if is_right else ""
    for one in test.comparisons:
        is_count, place = stage_of(one.what) == CACHE and one.error is None, rank(one.what)
        if one.verdict == Verdict.WRONG and (is_count or is_right or place < rank(cause.what)):
            yield not is_count, place, f"also found by {name}: {one.what}: {one.measured}{where}"


def other_stages(tests: Sequence[TestResult], cause: FailureCause) -> Iterator[str]:
    """Yield the stages that tests found wrong besides the cause's own comparison, in the order of the data."""
    wrong = {what for test in tests for what in wrong_of(test.comparisons)} - {*cause.at}
    own, stages = stage_of(cause.what), {*map(stage_of, wrong)}
    for stage in sorted(stages - {cause.what}, key=lambda one: (rank(one), one)):
        yield f"the rest of {stage}" if stage == own else stage
