"""Failures of a run, grouped by cause; the reports show one test of each cause in full, and name the others."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pytest_dsocr.compare.divergence import of_whole_page
from pytest_dsocr.contract import COMPARED, ROWS
from pytest_dsocr.explain.hints import OF_TEXT_ALONE, agreed
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import ComparisonKind, ComparisonName
from pytest_dsocr.report.case_result import CaseResult, FurtherResult
from pytest_dsocr.report.cause import CHECK, UNKNOWN, FailureCause
from pytest_dsocr.report.comparison_result import number
from pytest_dsocr.report.file import Ending
from pytest_dsocr.report.findings import other_stages, own_findings
from pytest_dsocr.report.order import AFTER_INPUTS, CACHE, LOGITS, OF_TEXT, TEXT, UP_TO_LOGITS, rank, stage_of, wrong_of
from pytest_dsocr.report.outcomes import TestResult
from pytest_dsocr.report.state import knows_state, with_state

CauseKey = tuple[str, ...]
"""A kind and its values, which tests and cases with the same cause share."""
OF_CAUSE, REFUTED = "whether the cause is ", ", as none of "
"""Parts of a suite's hint: before the mistakes that it found, and after a description."""
GUESSES = ("that ", "how ")
"""Starts of a suite's hint that nothing was measured for."""
KNOWN, GUESSED = "known input", "guessed input"
"""Kinds of keys of inputs with a proven cause, and of those with any finding; guesses of suites give way to these."""
NAMED = "named mistake"
"""Kind of keys of mistakes that cases name without a proof; tests that prove one have the same cause."""
VALUES, FILLING = re.compile(r"'[^']*'|\([^()]*\)"), frozenset(("token", "tokens", "times", "and", "more"))
"""Quoted and bracketed values of a sentence, and words that depend on how many there are."""
OF_TEST = ("mistake", "check", "kind", "raised", "test")
"""Kinds of keys that a test adds to its group; other kinds come only from the cases of a group."""


def causes_of(cases: Sequence[CaseResult], failing: Sequence[TestResult]) -> list[FailureCause]:
    """Group failing tests by cause: verdicts before errors of the machine, and large groups before small ones.

    Two failures have the same cause if they share a proven mistake, or else the comparison that breaks first. Next come
    the test function with its hint, and the hint or description of a case; numbers and quoted values may differ. A
    test without a hint of its own belongs to the cases that break there or before. Any other test is a group of its
    own. Wrong texts of odd pages belong to the first cause, as every mistake can change them.
    """
    causes = _by_key(cases)
    first = min(causes.values(), key=lambda one: rank(one.what), default=None)
    for test in sorted(failing, key=lambda test: test.nodeid):
        keys = [*_keys(test)]
        known = next((key for key in keys if key in causes), None)
        follows = known[0] in (KNOWN, GUESSED) if known else first is not None and _follows(test, first)
        cause = causes[known] if known else first if follows else None
        cause = cause or _new(cases, *_alone(test))
        if not follows:
            causes |= {key: cause for key in keys if key[0] in OF_TEST and key not in causes}
        cause.follow += [test.nodeid] * follows
        cause.tests.append(test.nodeid)
    by_name = {test.nodeid: test for test in failing}
    found = with_state([*{id(one): one for one in causes.values()}.values()], cases, by_name)
    for one in found:
        tests = sorted((by_name[name] for name in one.tests), key=lambda test: _place(test, one))
        one.tests = [test.nodeid for test in tests]
        one.further = [further for further in one.further if not any(_gives(other, further, one) for other in found)]
        if one.cases:
            one.own, one.left = own_findings(tests, one), [*other_stages(tests[1:], one)]
    return sorted(found, key=lambda one: (_is_of_machine(one, by_name), -len(one.cases), -len(one.tests)))


def _by_key(cases: Sequence[CaseResult]) -> dict[CauseKey, FailureCause]:
    """Return the causes of failing cases by their keys."""
    causes: dict[CauseKey, FailureCause] = {}
    for what, broken in sorted(_broken(cases), key=lambda one: -len(one[1])):
        first, proven, stands = _explained(broken, cases)
        keys: list[CauseKey] = [("mistake", name) for name in first.mistakes if proven]
        named = _named_by(first, proven) if stands else ""
        cause = next((causes[key] for key in keys if key in causes), None)
        cause = cause or _new(cases, what, named or _hint(first, broken), proven)
        told, text = _described(what, first, broken, cause.unit)
        read_first = first if named or cause.cases or what not in OF_TEXT else told
        cause.cases += dict.fromkeys(case.id for case in (read_first, *broken) if case in broken)
        cause.described = cause.described or text
        cause.at |= Counter(case.first_wrong or what for case in cases if case.id in cause.cases)
        cause.further = max((cause.further, *(case.further for case in (first, *broken))), key=len)
        keys += [("mistake", name) for one in cause.further if one.proven for name in one.mistakes]
        keys += [("first", what), *(key for case in broken for key in (("case", case.id), ("at", what, case.why)))]
        keys += [("odd pages",)] * (not causes)
        keys += [("first", one) for one in OF_TEXT if what in OF_TEXT and not proven and ("first", one) not in causes]
        keys += [
            ("said", said) for case in broken for said in (case.cause, case.described and case.described.text) if said
        ]
        keys += [] if proven else [("alike", stage_of(what), *_kind(case.why)) for case in broken if case.why]
        causes |= dict.fromkeys(keys, cause)
        inputs = {one for case in broken for one in wrong_of(case.comparisons) if one in COMPARED}
        known = [KNOWN] * proven + [GUESSED] * (proven or bool(cause.described))
        causes |= {(kind, _input(one)): cause for kind in known for one in inputs}
        causes |= {key: cause for name in first.mistakes if named and (key := (NAMED, name)) not in causes}
        causes |= {key: cause for one in (what, *sorted(inputs)) for key in _seams(one) if key not in causes}
    return causes


def _new(cases: Sequence[CaseResult], what: str, why: str, proven: bool) -> FailureCause:
    unit = "page" if len({case.page for case in cases}) == len(cases) else "case"
    return FailureCause(what=what, cases=[], of=len(cases), unit=unit, why=why, proven=proven, tests=[])


def _gives(other: FailureCause, further: FurtherResult, one: FailureCause) -> bool:
    """Return whether other pages break first at a further cause, and say as much of it."""
    is_there = other is not one and bool(other.cases) and other.what == further.what
    return is_there and (other.proven or bool(other.described and not further.mistakes))


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
        if what != page in by_what and all(page in wrong_of(case.comparisons) for case in by_what[what]):
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


def _described(what: str, first: CaseResult, broken: Sequence[CaseResult], unit: str) -> tuple[CaseResult, str]:
    """Return the description to read, with its case: that of the explained case, and of texts the most telling one.

    The description has its own comparison's name if that is another one, and its page's if other pages have another.
    """
    own = [case for case in (first, *broken) if case.described and case.first_wrong == what]
    case = max(own, key=_telling) if own and what in OF_TEXT else own[0] if own else None
    if case is not None and case.described:
        is_of_all = {*(one.described and one.described.text for one in broken)} == {case.described.text}
        name = case.page if unit == "page" else case.id
        return case, f"{case.described.text}{'' if is_of_all else f' ({name})'}"
    found = next(((case, case.described.text) for case in broken if case.described), None)
    return (found[0], f"{found[0].first_wrong} of {found[0].id}: {found[1]}") if found else (first, "")


def _telling(case: CaseResult) -> tuple[bool, float]:
    """Return a key that sorts whole descriptions of texts before others, and large ones before small ones."""
    said = case.described
    if said is not None and said.explains:
        return True, said.cases
    return False, max((number(one.share) for one in case.comparisons if one.what == TEXT), default=0.0)


def _kind(said: str) -> Sequence[str]:
    """Return the words of a sentence without its numbers and values, for sentences that differ only in these."""
    return sorted({*re.findall(r"[a-z_]+", VALUES.sub("", said.partition(REFUTED)[0].lower()))} - FILLING)


def _input(what: str) -> str:
    """Return the stage of an input; ids and mask are one."""
    stage = stage_of(what)
    return ROWS[0] if stage in ROWS else stage


def _follows(test: TestResult, cause: FailureCause) -> bool:
    """Return whether all that a test of a suite found may follow from the cause: it is of later stages, and no hint.

    A wrong text may follow from any other one.
    """
    found = [rank(one.what) for one in test.comparisons if not one.passes]
    own = test.sent.cause
    is_told = own is not None and not own.mistakes and not own.why.partition(REFUTED)[0]
    start = min(rank(cause.what), rank(TEXT) - 1)
    return is_told and bool(found) and start < min(found) and max(found) < len(AFTER_INPUTS)


def _keys(test: TestResult) -> Iterator[CauseKey]:
    """Yield the keys of a test's cause, the surest first."""
    case, wrong, own = test.sent.case, wrong_of(test.comparisons), test.sent.cause
    if case and wrong and wrong <= {one.what for one in case.comparisons}:
        yield "case", case.id
    if wrong and all(ComparisonName.parse(what).kind is ComparisonKind.ODD_PAGE for what in wrong):
        yield ("odd pages",)
    if own:
        yield from ((kind, name) for kind in ("mistake", NAMED) for name in own.mistakes)
        yield "at", own.what, own.why
        yield "check", test.nodeid.partition("[")[0], own.why or test.why
        said = own.why.removeprefix(OF_CAUSE).partition(REFUTED)[0]
        yield "said", said
        is_of_any_stage = OF_TEXT_ALONE in said or (own.what in OF_TEXT and own.described)
        if not said or UNKNOWN in said or is_of_any_stage:
            yield "first", own.what
            yield from (("seam", stage) for stage in sorted({*map(stage_of, wrong)} - {*OF_TEXT}))
        elif not own.mistakes:
            yield "alike", stage_of(own.what), *_kind(said)
        if not own.mistakes and not own.why.startswith(OF_CAUSE):
            kinds = (KNOWN, GUESSED) if said.startswith(GUESSES) else (KNOWN,)
            yield from ((kind, _input(what)) for kind in kinds for what in sorted(wrong))
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


def _place(test: TestResult, cause: FailureCause) -> tuple[int, bool, bool, bool, bool, str]:
    """Return a key that sorts first the plugin's own failures at the first break of the explained case.

    Tests that show state between pages come before these.
    """
    is_late, is_elsewhere = test.nodeid in cause.follow, cause.what not in wrong_of(test.comparisons)
    is_other, known = test.case_id not in cause.cases[:1], -knows_state(test) * cause.is_state
    return known, is_late, not test.is_told, is_elsewhere, is_other, test.nodeid


def _hint(first: CaseResult, broken: Sequence[CaseResult]) -> str:
    """Return the common part of the cases' hints.

    A hint that names mistakes which the case to read refutes is left out.
    """
    hints = [case.cause or "" for case in broken if {*case.mistakes} <= {*first.mistakes}] or [first.cause or ""]
    common = agreed(hints) or (hints[0] if UNKNOWN in hints[0] else hints[0] and f"{hints[0]} ({broken[0].id})")
    return common and f"{CHECK}{common}"
