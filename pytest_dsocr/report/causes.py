"""Failures of a run, grouped by cause; the reports show one test of each cause in full, and name the others."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_dsocr.compare.divergence import is_cut, of_whole_page
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.explain.hints import agreed
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.models import VISION
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import ComparisonKind, ComparisonName
from pytest_dsocr.report.case_result import CaseResult, ComparisonResult, FurtherResult
from pytest_dsocr.report.cause import CHECK, UNKNOWN, FailureCause, function_of
from pytest_dsocr.report.file import Ending
from pytest_dsocr.report.outcomes import TestResult

CauseKey = tuple[str, ...]
"""A kind and its values, which tests and cases with the same cause share."""
OF_CAUSE, REFUTED = "whether the cause is ", ", as none of "
"""Parts of a suite's hint: before the mistakes that it found, and after a description."""
LOGITS, CACHE, OF_TEXT = "logits", "cache", ("read", "text")
UP_TO_LOGITS = (*COMPARED, *VISION, PREFILL, LOGITS)
AFTER_INPUTS = (*VISION, PREFILL, CACHE, LOGITS, "tokens", "read", "text")
"""Stages in the order of the data, after the inputs."""
VALUES, FILLING = re.compile(r"'[^']*'|\([^()]*\)"), frozenset(("token", "tokens", "times", "and", "more"))
"""Quoted and bracketed values of a sentence, and words that depend on how many there are."""
OF_TEST = ("mistake", "check", "kind", "raised", "test")
"""Kinds of keys that a test adds to its group; other kinds come only from the cases of a group."""
RIGHT = tolerances("float32").usual
"""Largest error of correct implementations in float32: a comparison within it does not show a cause."""
MOST_OWN = 3
"""Number of findings of other tests that are shown with a cause."""


def causes_of(cases: Sequence[CaseResult], failing: Sequence[TestResult]) -> list[FailureCause]:
    """Group failing tests by cause: verdicts before errors of the machine, and large groups before small ones.

    Two failures have the same cause if they share a proven mistake, or else the comparison that breaks first. Next come
    the test function with its hint, and the hint or description of a case; numbers and quoted values may differ. A
    test without a hint of its own belongs to the cases that break there or before. Any other test is a group of its
    own. Wrong texts of odd pages belong to the first cause, as every mistake can change them.
    """
    causes = _by_key(cases)
    first = min(causes.values(), key=lambda one: _rank(one.what), default=None)
    for test in sorted(failing, key=lambda test: test.nodeid):
        keys = [*_keys(test)]
        cause = next((causes[key] for key in keys if key in causes), None)
        if cause is None and first and _follows(test, first):
            first.tests.append(test.nodeid)
            first.follow.append(test.nodeid)
            continue
        cause = cause or _new(cases, *_alone(test))
        causes |= {key: cause for key in keys if key[0] in OF_TEST and key not in causes}
        cause.tests.append(test.nodeid)
    found, by_name = [*{id(one): one for one in causes.values()}.values()], {test.nodeid: test for test in failing}
    for one in found:
        tests = sorted((by_name[name] for name in one.tests), key=lambda test: _place(test, one))
        one.tests = [test.nodeid for test in tests]
        one.further = [further for further in one.further if not any(_gives(other, further, one) for other in found)]
        if one.cases:
            one.own, one.left = _own(tests, one), [*_left(tests[1:], one)]
    return sorted(found, key=lambda one: (_is_of_machine(one, by_name), -len(one.cases), -len(one.tests)))


def _by_key(cases: Sequence[CaseResult]) -> dict[CauseKey, FailureCause]:
    """Return the causes of failing cases by their keys."""
    causes: dict[CauseKey, FailureCause] = {}
    for what, broken in sorted(_broken(cases), key=lambda one: -len(one[1])):
        first, proven, stands = _explained(broken, cases)
        keys: list[CauseKey] = [("mistake", name) for name in first.mistakes if proven]
        named = _named_by(first, proven) if stands else ""
        cause = next((causes[key] for key in keys if key in causes), None)
        cause = cause or _new(cases, what, named or _hint(what, first, broken, cases), proven)
        cause.cases += dict.fromkeys(case.id for case in (first, *broken) if case in broken)
        cause.described = cause.described or _described(what, first, broken)
        cause.at |= Counter(case.first_wrong or what for case in cases if case.id in cause.cases)
        cause.further = max((cause.further, *(case.further for case in (first, *broken))), key=len)
        keys += [("mistake", name) for one in cause.further if one.proven for name in one.mistakes]
        keys += [("first", what), *(key for case in broken for key in (("case", case.id), ("at", what, case.why)))]
        keys += [("odd pages",)] * (not causes)
        keys += [
            ("said", said) for case in broken for said in (case.cause, case.described and case.described.text) if said
        ]
        keys += [] if proven else [("alike", _stage(what), *_kind(case.why)) for case in broken if case.why]
        causes |= dict.fromkeys(keys, cause)
        inputs = {one for case in broken for one in _wrong(case.comparisons) if one in COMPARED}
        causes |= {key: cause for one in (what, *sorted(inputs)) for key in _seams(one) if key not in causes}
    return causes


def _new(cases: Sequence[CaseResult], what: str, why: str, proven: bool) -> FailureCause:
    unit = "page" if len({case.page for case in cases}) == len(cases) else "case"
    return FailureCause(what=what, cases=[], of=len(cases), unit=unit, why=why, proven=proven, tests=[])


def _gives(other: FailureCause, further: FurtherResult, one: FailureCause) -> bool:
    """Return whether other pages break first at a further cause, and say as much of it."""
    is_there = other is not one and bool(other.cases) and other.what == further.what
    return is_there and (other.proven or bool(other.described and not further.mistakes))


def _own(tests: Sequence[TestResult], cause: FailureCause) -> list[str]:
    """Return what tests of suites found that does not follow from the cause: one line of each function."""
    found: dict[str, tuple[bool, int, str]] = {}
    explained = {cause.what, *cause.at, *(one.what for one in cause.further)}
    for test in tests:
        origin = test.sent.cause
        if test.sent.case is None and not (origin and (origin.mistakes or origin.what in explained)):
            for one in sorted(_found_by(test, cause))[:1]:
                found.setdefault(function_of(test.nodeid)[0], one)
    return [line for *_, line in sorted(found.values())[:MOST_OWN]]


def _found_by(test: TestResult, cause: FailureCause) -> Iterator[tuple[bool, int, str]]:
    """Yield wrong counts of the cache, tensors before the cause, and any where the cause's own tensor is right.

    Each is its sentence, after two values that sort the most decisive first.
    """
    right = [one.error for one in test.comparisons if one.what == cause.what and one.passes]
    is_right = any(isinstance(error, float | int) and error <= RIGHT for error in right)
    own, (function, of) = test.sent.cause, function_of(test.nodeid)
    why = own.why.removeprefix(f"{UNKNOWN}{own.what}").lstrip(":; ") if own else ""
    where = f"; {why or f'{cause.what} is right there'}" if is_right else ""
    for one in test.comparisons:
        is_count, rank = _stage(one.what) == CACHE and one.error is None, _rank(one.what)
        if one.verdict == Verdict.WRONG and (is_count or is_right or rank < _rank(cause.what)):
            name = f"{function.rpartition('::')[2]}{of}"
            yield not is_count, rank, f"also found by {name}: {one.what}: {one.measured}{where}"


def _left(tests: Sequence[TestResult], cause: FailureCause) -> Iterator[str]:
    """Yield the stages that tests found wrong besides the cause's own comparison, in the order of the data."""
    wrong = {what for test in tests for what in _wrong(test.comparisons)} - {*cause.at}
    own, stages = _stage(cause.what), {*map(_stage, wrong)}
    for stage in sorted(stages - {cause.what}, key=lambda one: (_rank(one), one)):
        yield f"the rest of {stage}" if stage == own else stage


def _is_of_machine(one: FailureCause, tests: Mapping[str, TestResult]) -> bool:
    """Return whether all failures of a cause are errors of the machine, and not of the subject."""
    return bool(one.tests) and all(tests[name].ended_as is Ending.INFRASTRUCTURE for name in one.tests)


def _broken(cases: Sequence[CaseResult]) -> Iterator[tuple[str, list[CaseResult]]]:
    """Yield failing cases by their first WRONG comparison; pages without crops join those that break at the crops."""
    by_what: dict[str, list[CaseResult]] = {}
    for case in cases:
        if case.first_wrong and not case.passes:
            by_what.setdefault(case.first_wrong, []).append(case)
    for what in list(by_what):
        page = of_whole_page(what)
        if what != page in by_what and all(page in _wrong(case.comparisons) for case in by_what[what]):
            by_what[what] += by_what.pop(page)  # pages that are not cut have no crops to break at
    yield from by_what.items()


def _explained(broken: Sequence[CaseResult], cases: Sequence[CaseResult]) -> tuple[CaseResult, bool, bool]:
    """Return the case with the best explanation, whether that is proven, and whether the other pages allow it.

    The best explanation of texts is the one that was tried on most pages. Each worker tries only its own pages, so
    the explanations of the others must name the same mistakes.
    """
    texts = [case for case in cases if case.tried_on and (case in broken or case.passes)]
    if not texts:
        first = max(broken, key=lambda case: (case.proven, bool(case.mistakes), bool(case.explained)))
        return first, first.proven, True
    last = max(texts, key=lambda case: case.tried_on)
    agree = all({*last.mistakes} <= {*case.mistakes} for case in texts)
    stands = agree or last.tried_on == len(cases)
    return last, last.proven and stands, stands


def _named_by(case: CaseResult, proven: bool) -> str:
    """Return the explanation of a case, with "perhaps" unless it is proven; empty if it names no mistake."""
    said = case.explained or ""
    is_named = not said.startswith(UNTOLD) and (case.mistakes or (said and case.readings))
    return said if proven else f"perhaps {said}" if is_named else ""


def _described(what: str, first: CaseResult, broken: Sequence[CaseResult]) -> str:
    """Return the description of the case to read, or else of the first case that has one.

    One of another comparison, or of another case than the explained one, is returned under its own name.
    """
    own = sorted((first, *broken), key=lambda case: case.first_wrong != what)
    found = next(((case, case.described.text) for case in own if case.described), None)
    if found is None:
        return ""
    case, text = found
    return text if case.first_wrong == what else f"{case.first_wrong} of {case.id}: {text}"


def _stage(what: str) -> str:
    return ComparisonName.parse(what).stage


def _kind(said: str) -> Sequence[str]:
    """Return the words of a sentence without its numbers and values, for sentences that differ only in these."""
    return sorted({*re.findall(r"[a-z_]+", VALUES.sub("", said.partition(REFUTED)[0].lower()))} - FILLING)


def _rank(what: str) -> int:
    """Return the place of a comparison's stage in the order of the data: inputs come before all, files after all."""
    stage = _stage(what)
    return -1 if stage in COMPARED else AFTER_INPUTS.index(stage) if stage in AFTER_INPUTS else len(AFTER_INPUTS)


def _follows(test: TestResult, cause: FailureCause) -> bool:
    """Return whether all that a test of a suite found may follow from the cause: it is of later stages, and no hint."""
    found = [_rank(one.what) for one in test.comparisons if not one.passes]
    own = test.sent.cause
    is_told = own is not None and not own.mistakes and not own.why.partition(REFUTED)[0]
    return is_told and bool(found) and _rank(cause.what) < min(found) and max(found) < len(AFTER_INPUTS)


def _wrong(comparisons: Sequence[ComparisonResult]) -> set[str]:
    return {one.what for one in comparisons if one.verdict == Verdict.WRONG}


def _keys(test: TestResult) -> Iterator[CauseKey]:
    """Yield the keys of a test's cause, the surest first."""
    case, wrong, own = test.sent.case, _wrong(test.comparisons), test.sent.cause
    if case and wrong and wrong <= {one.what for one in case.comparisons}:
        yield "case", case.id
    if wrong and all(ComparisonName.parse(what).kind is ComparisonKind.ODD_PAGE for what in wrong):
        yield ("odd pages",)
    if own:
        yield from (("mistake", name) for name in own.mistakes)
        yield "at", own.what, own.why
        yield "check", test.nodeid.partition("[")[0], own.why or test.why
        said = own.why.removeprefix(OF_CAUSE).partition(REFUTED)[0]
        yield "said", said
        if not said or UNKNOWN in said:
            yield "first", own.what
            yield from (("seam", stage) for stage in sorted({*map(_stage, wrong)} - {*OF_TEXT}))
        elif not own.mistakes:
            yield "alike", _stage(own.what), *_kind(said)
        if kind := _kind(said or test.why):
            yield "kind", test.nodeid.partition("[")[0], *kind
    elif test.is_told:
        yield "raised", test.why
    else:
        yield "test", test.nodeid


def _seams(what: str) -> Iterator[CauseKey]:
    """Yield the keys of tensors that are wrong if cases break here: these ones, and those of the decoder after them."""
    stage = ComparisonName.parse(what).stage
    yield "seam", stage
    if stage in UP_TO_LOGITS:
        yield from (("seam", one) for one in (PREFILL, LOGITS, CACHE) if one != stage)


def _alone(test: TestResult) -> tuple[str, str, bool]:
    """Return the place, reason and proof of a test's own cause."""
    if own := test.sent.cause:
        hint = f"{CHECK}{own.why}" if own.why else test.why
        return own.what, own.why if own.mistakes else hint, bool(own.mistakes)
    return (test.sent.fault and test.sent.fault.stage) or "", test.why, False


def _place(test: TestResult, cause: FailureCause) -> tuple[bool, bool, bool, bool, str]:
    """Return a key that sorts first the plugin's own failures at the first break of the explained case."""
    is_first = cause.what in _wrong(test.comparisons)
    return test.nodeid in cause.follow, not test.is_told, not is_first, test.case_id not in cause.cases[:1], test.nodeid


def _hint(what: str, first: CaseResult, broken: Sequence[CaseResult], cases: Sequence[CaseResult]) -> str:
    """Return the common part of the cases' hints, and for texts whether pages without crops are right.

    A hint that names mistakes which the case to read refutes is left out.
    """
    hints = [case.cause or "" for case in broken if {*case.mistakes} <= {*first.mistakes}] or [first.cause or ""]
    common = agreed(hints) or (hints[0] if UNKNOWN in hints[0] else hints[0] and f"{hints[0]} ({broken[0].id})")
    right = [case for case in cases if case.passes]
    if what == "text" and right and all(map(_is_cut, broken)) and not any(map(_is_cut, right)):
        common += "; the pages without crops are right"
    return common and f"{CHECK}{common}"


def _is_cut(case: CaseResult) -> bool:
    return is_cut(case.shapes["reference"] or {})
