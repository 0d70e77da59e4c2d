"""Cause of a run's failures, and its phrases in the reports."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from pytest_dsocr.base.words import count, listed
from pytest_dsocr.describe.description import LEFT
from pytest_dsocr.records.names import ComparisonName
from pytest_dsocr.report.case_result import FurtherResult
from pytest_dsocr.report.outcomes import JudgedTest

CHECK, UNKNOWN = "check ", "what makes "
"""Start of a reason that is advice, and no explanation; what follows it if nothing is known."""


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
    separated: str = ""
    """Sizes by which the wrong pages differ from the right ones."""
    further: list[FurtherResult] = []
    """Other causes in these cases, in the order in which to fix them."""
    at: dict[str, int] = {}
    """Number of cases by their own first WRONG comparison: pages without crops break elsewhere than the others."""
    follow: list[str] = []
    """Failed tests that may follow from the wrong values, as of later stages alone; ``tests`` has them too."""
    own: list[str] = []
    """Findings of other tests that do not follow from the cause, the most decisive first."""
    is_state: bool = False
    """Whether a page, read again, gave another result, from which these failures may follow."""
    left: list[str] = []
    """Other stages that its tests found wrong, in the order of the data."""

    @property
    def said(self) -> str:
        """Why, and how the values differ; with further causes, all of them by number."""
        found = "; ".join(self.whys)
        return f"{self.how_many}: {found}" if self.numbered else found

    @property
    def numbered(self) -> list[str]:
        """Each cause with its number and stage, once; empty if there is one cause alone."""
        every = [f"{what}: {why}" for what, why, _ in self._every if self.further]
        return [f"{k}. {one}" for k, one in enumerate(dict.fromkeys(every), 1)]

    @property
    def how_many(self) -> str:
        """Number of causes; those of one stage may be the same as long as only one is proven."""
        proven = Counter({ComparisonName.parse(what).stage: 0 for what, *_ in self._every})
        proven.update(ComparisonName.parse(what).stage for what, _, is_proven in self._every if is_proven)
        fewest, most = sum(max(1, number) for number in proven.values()), len(self.numbered)
        return f"{fewest} to {count(most, 'cause')}" if fewest < most else count(most, "cause")

    @property
    def whys(self) -> list[str]:
        """The parts of :attr:`said`, a line each."""
        return [*(self.numbered or self._parts), *self.own]

    @property
    def lines(self) -> list[str]:
        """First place and reason, then each of several causes, then what other tests found."""
        why = self.how_many if self.numbered else "; ".join(self._parts)
        return [": ".join(filter(None, (where_broke(self), why))), *self.numbered, *self.own]

    @property
    def _every(self) -> list[tuple[str, str, bool]]:
        """Place, reason and proof of each cause.

        A further cause at the first break takes the place of a first cause that names nothing, and leaves nothing.
        """
        every = [(one.what, one.said, one.proven) for one in self.further]
        is_named = LEFT in self.described or (self.why and not self.why.startswith(CHECK))
        own = (self.what, "; ".join(self._parts), self.proven)
        return [own, *every] if is_named or all(self.what != what for what, *_ in every) else every

    @property
    def _parts(self) -> list[str]:
        """A proof alone, or the explanation and the description, or the description and what to check."""
        measured, separated = ([one] if one else [] for one in (self.described, self.separated))
        if self.proven:
            return [f"{self.why} (proven)"]
        if self.why and not self.why.startswith(CHECK):
            return [self.why, *(f"measured: {one}" for one in measured), *separated]
        bare = f"{CHECK}{UNKNOWN}{self.what}" if measured or self.own else ""
        return [*measured, *separated, *filter(None, [self.why.removeprefix(bare).lstrip(":; ")])]


def label(one: FailureCause) -> str:
    """Return the label of a cause."""
    return "first broke" if one.cases else "failed"


def in_words(one: FailureCause) -> str:
    """Return where a cause broke, in how many cases or which test, and why."""
    return ": ".join(filter(None, (where_broke(one), one.said)))


def where_broke(one: FailureCause) -> str:
    """Return the comparison that broke, in how many cases, or the test that failed."""
    if one.cases:
        first, *others = sorted((one.at or {one.what: len(one.cases)}).items(), key=lambda at: at[0] != one.what)
        also = "".join(f", {what} in {cases}" for what, cases in others)
        return f"{first[0]} in {first[1]} of {count(one.of, one.unit)}{also}"
    function, of = function_of(one.tests[0])
    return f"{one.what} of {function}" if one.what else function + of


def others_failed(one: FailureCause) -> str:
    """Return how many other tests failed, where, and whether for the same reason; empty if there are none."""
    others, reason = one.tests[1:], "for these reasons" if one.further else "for the same reason"
    shown = [test for test in others if one.proven and test not in one.follow]
    at = f" at {listed(one.left)}" if one.left and not one.proven else ""
    how = {f" {reason}": len(shown), f"{at}, perhaps {reason}" if one.cases else " alike": len(others) - len(shown)}
    return "; ".join(f"{count(tests, 'more test')} failed{which}" for which, tests in how.items() if tests)


def also_failed(one: FailureCause, named: int = 0, how: str = "") -> str:
    """Return the number and names of the other tests that failed from a cause; empty if there are none."""
    others = sorted(one.tests[1:])
    follow = f" ({len(one.follow)} of them perhaps)" if one.follow else ""
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
