"""Failures of a run, grouped by cause; the reports show one test of each cause in full, and name the others."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.divergence import is_cut, of_whole_page
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.explain.hints import agreed
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.models import VISION
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import ComparisonKind, ComparisonName
from pytest_dsocr.report.case_result import CaseResult, ComparisonResult, FurtherResult
from pytest_dsocr.report.file import Ending
from pytest_dsocr.report.outcomes import JudgedTest, TestResult

CauseKey = tuple[str, ...]
"""A kind and its values, which tests and cases with the same cause share."""
OF_CAUSE, REFUTED, UNKNOWN = "whether the cause is ", ", as none of ", "what makes "
"""Parts of a suite's hint: before the mistakes that it found, after a description, and if it has neither."""
LOGITS, CACHE, OF_TEXT = "logits", "cache", ("read", "text")
UP_TO_LOGITS = (*COMPARED, *VISION, PREFILL, LOGITS)
CHECK = "check "
"""Start of a reason that is advice, and no explanation."""
AFTER_INPUTS = (*VISION, PREFILL, LOGITS, CACHE, "tokens", "read", "text")
"""Stages in the order of the data, after the inputs."""
VALUES, FILLING = re.compile(r"'[^']*'|\([^()]*\)"), frozenset(("token", "tokens", "times", "and", "more"))
"""Quoted and bracketed values of a sentence, and words that depend on how many there are."""
OF_TEST = ("mistake", "check", "kind", "raised", "test")
"""Kinds of keys that a test adds to its group; other kinds come only from the cases of a group."""


class FailureCause(Struct):
    """Failures with one cause, as far as the run shows it; each failing test belongs to one."""

    what: str
    """First comparison that is WRONG, or the stage that raised; empty for other failures."""
    cases: list[str]
    """Cases that break first there, the one to read first; empty if the tests have no case."""
    of: int
    """Number of cases of the run."""
    unit: str
    """``page`` if each case has another page, otherwise ``case``."""
    why: str
    """Explanation, proven or not; otherwise the hint or the finding."""
    proven: bool
    tests: list[str]
    """Tests that failed from it, the one to read first."""
    described: str = ""
    """Measured relation of the first wrong values to the expected ones."""
    further: list[FurtherResult] = []
    """Other causes in these cases, in the order in which to fix them."""
    at: dict[str, int] = {}
    """Number of cases by their own first WRONG comparison: pages without crops break elsewhere than the others."""
    follow: list[str] = []
    """Failed tests of later stages alone, which may follow from the wrong values; ``tests`` has them too."""

    @property
    def said(self) -> str:
        """Why, and how the values differ; with further causes, all of them by number."""
        found = "; ".join(self.whys)
        return f"{len(self.numbered)} causes: {found}" if self.numbered else found

    @property
    def numbered(self) -> list[str]:
        """Each cause with its number and stage, once; empty if there is one cause alone.

        A further cause at the first break takes the place of a first cause that names nothing.
        """
        if not self.further:
            return []
        every, is_named = [(one.what, one.said) for one in self.further], self.why and not self.why.startswith(CHECK)
        own = [(self.what, "; ".join(self._parts))] if is_named or self.what not in dict(every) else []
        return [f"{k}. {where}: {why}" for k, (where, why) in enumerate(dict.fromkeys([*own, *every]), 1)]

    @property
    def whys(self) -> list[str]:
        """The parts of :attr:`said`, a line each: the causes by number, or why and how the values differ."""
        return self.numbered or self._parts

    @property
    def _parts(self) -> list[str]:
        why = f"{self.why}{' (proven)' * self.proven}" if self.why else ""
        measured = f"measured: {self.described}" if why and self.described else self.described
        return [*filter(None, (why, measured))]


def causes_of(cases: Sequence[CaseResult], failing: Sequence[TestResult]) -> list[FailureCause]:
    """Group failing tests by cause: verdicts before errors of the machine, and large groups before small ones.

    Two failures have the same cause if they share a proven mistake, or else the comparison that breaks first. Next come
    the test function with its hint, and the hint or description of a case; numbers and quoted values may differ. A
    test without a hint of its own belongs to the cases that break there or before. Any other test is a group of its
    own. Wrong texts of odd pages belong to the first cause, as every mistake can change them.
    """
    causes: dict[CauseKey, FailureCause] = {}
    unit = "page" if len({case.page for case in cases}) == len(cases) else "case"

    def known(keys: Sequence[CauseKey], what: str, why: str, proven: bool) -> FailureCause:
        new = FailureCause(what=what, cases=[], of=len(cases), unit=unit, why=why, proven=proven, tests=[])
        return next((causes[key] for key in keys if key in causes), new)

    for what, broken in sorted(_broken(cases), key=lambda one: -len(one[1])):
        first, proven, stands = _explained(broken, cases)
        keys: list[CauseKey] = [("mistake", name) for name in first.mistakes if proven]
        named = _named_by(first, proven) if stands else ""
        cause = known(keys, what, named or _hint(what, first, broken, cases), proven)
        cause.cases += dict.fromkeys(case.id for case in (first, *broken) if case in broken)
        cause.described = cause.described or _described(what, first, broken)
        cause.at |= Counter(case.first_wrong or what for case in cases if case.id in cause.cases)
        cause.further = max((cause.further, *(case.further for case in (first, *broken))), key=len)
        keys += [key for case in broken for key in (("case", case.id), ("at", what, case.why))]
        keys += [("odd pages",)] * (not causes)
        keys += [
            ("said", said) for case in broken for said in (case.cause, case.described and case.described.text) if said
        ]
        keys += [] if proven else [("alike", _stage(what), *_kind(case.why)) for case in broken if case.why]
        causes |= dict.fromkeys(keys, cause)
        inputs = {one for case in broken for one in _wrong(case.comparisons) if one in COMPARED}
        causes |= {key: cause for one in (what, *sorted(inputs)) for key in _seams(one) if key not in causes}
    first_cause = min(causes.values(), key=lambda one: _rank(one.what), default=None)
    for test in sorted(failing, key=lambda test: test.nodeid):
        keys = [*_keys(test)]
        if first_cause and not any(key in causes for key in keys) and _follows(test, first_cause):
            first_cause.tests.append(test.nodeid)
            first_cause.follow.append(test.nodeid)
            continue
        cause = known(keys, *_alone(test))
        causes |= {key: cause for key in keys if key[0] in OF_TEST and key not in causes}
        cause.tests.append(test.nodeid)
    tests, found = {test.nodeid: test for test in failing}, {id(one): one for one in causes.values()}.values()
    for one in found:
        one.tests.sort(key=lambda test: _place(tests[test], one))
    return sorted(found, key=lambda one: (_is_of_machine(one, tests), -len(one.cases), -len(one.tests)))


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
    common = agreed(hints) or (hints[0] and f"{hints[0]} ({broken[0].id})")
    right = [case for case in cases if case.passes]
    if what == "text" and right and all(map(_is_cut, broken)) and not any(map(_is_cut, right)):
        common += "; the pages without crops are right"
    return common and f"{CHECK}{common}"


def _is_cut(case: CaseResult) -> bool:
    return is_cut(case.shapes["reference"] or {})


# Phrases.


def label(one: FailureCause) -> str:
    """Return the label of a cause."""
    return "first broke" if one.cases else "failed"


def in_words(one: FailureCause) -> str:
    """Return where a cause broke, in how many cases or which test, and why."""
    return f"{where_broke(one)}: {one.said}" if one.said else where_broke(one)


def where_broke(one: FailureCause) -> str:
    """Return the comparison that broke, in how many cases, or the test that failed."""
    if one.cases:
        first, *others = sorted((one.at or {one.what: len(one.cases)}).items(), key=lambda at: at[0] != one.what)
        also = "".join(f", {what} in {cases}" for what, cases in others)
        return f"{first[0]} in {first[1]} of {count(one.of, one.unit)}{also}"
    function, of = function_of(one.tests[0])
    return f"{one.what} of {function}" if one.what else function + of


def also_failed(one: FailureCause, named: int = 0, how: str = "") -> str:
    """Return the number and names of the other tests that failed from a cause; empty if there are none."""
    others = sorted(one.tests[1:])
    follow = f" ({len(one.follow)} of later stages, which may follow from it)" if one.follow else ""
    names = f": {listed([*_named(others)], named)}" if named else ""
    return f"{count(len(others), 'more test')}{follow}{how}{names}" if others else ""


def _named(tests: Sequence[str]) -> Iterator[str]:
    """Yield names of tests; after another test of the same function only the parameters."""
    before = ""
    for function, of in map(function_of, tests):
        yield of if of and function == before else function + of
        before = function


def function_of(test: str) -> tuple[str, str]:
    """Return the function of a test without its folder, and its parameters in their brackets."""
    function, bracket, of = test.partition("[")
    return function.rpartition("/")[2], bracket + of


def by_first(causes: Sequence[FailureCause], tests: Sequence[JudgedTest]) -> Iterator[tuple[FailureCause, JudgedTest]]:
    """Yield each cause that made a test fail, with the test to read."""
    named = {test.nodeid: test for test in tests}
    yield from ((one, named[one.tests[0]]) for one in causes if one.tests)
