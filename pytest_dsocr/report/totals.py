"""Totals over the tests and cases of a run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from pytest_dsocr.compare.verdict import Reason, Symptom, Verdict
from pytest_dsocr.models.spec import PREPROCESS, TOKENIZER
from pytest_dsocr.records.config import MISSING, Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.case_result import ComparisonResult, number
from pytest_dsocr.report.causes import FailureCause, causes_of
from pytest_dsocr.report.collection import Collected
from pytest_dsocr.report.document import Looser, Missing
from pytest_dsocr.report.outcomes import FAILING, TestResult
from pytest_dsocr.report.strip import OUTPUT, stage_of

LEVELS = tuple(map(str, Level))
LEVEL_OF = {OUTPUT: Level.TEXT, PREPROCESS: Level.INPUTS, TOKENIZER: Level.INPUTS}
"""Levels that include the stages before and after the model; all other stages are of L2."""


class RunTotals(Collected):
    """Collected tests and cases, and totals over them."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of comparisons by verdict."""
        return Counter(one.verdict for one in self._compared())

    @property
    def made(self) -> int:
        """Number of comparisons made, without those that are NOT-COMPARED."""
        return sum(number for verdict, number in self.counts.items() if verdict != Verdict.NOT_COMPARED)

    @property
    def has_compared(self) -> bool:
        """Whether a test that is expected to pass compared anything."""
        return any(test.has_compared for test in self.tests.values() if test.outcome != "xfailed")

    @property
    def worst_drift(self) -> tuple[float, str]:
        """Largest relative error inside a tolerance, and the suite that measured it."""
        drifts = (
            (number(one.error), suite_of(test.nodeid))
            for test in self.tests.values()
            for one in test.comparisons
            if one.verdict == Verdict.DRIFT
        )
        return max(drifts, default=(0.0, ""))

    @property
    def suites(self) -> list[str]:
        """The suites whose tests compared anything."""
        return sorted({suite_of(test.nodeid) for test in self.tests.values() if test.has_compared})

    @property
    def failing(self) -> list[TestResult]:
        """The tests that failed."""
        return [test for test in self.tests.values() if test.outcome in FAILING]

    @property
    def flaky(self) -> list[TestResult]:
        """The tests that passed only when they were run again."""
        return [test for test in self.tests.values() if test.is_flaky]

    @property
    def odd(self) -> Mapping[str, int]:
        """Number of tests by outcome, for outcomes that are unknown to pytest."""
        return Counter(test.outcome for test in self.tests.values() if test.is_odd)

    @property
    def causes(self) -> list[FailureCause]:
        """The failures by their cause."""
        return causes_of(self.cases, [test for test in self.tests.values() if test.why])

    @property
    def suspicious(self) -> list[tuple[str, float]]:
        """First place in each case with a drift above that of correct implementations, and the drift."""
        found = [
            (case.id, next((one for one in case.comparisons if Symptom.SUSPICIOUS in one.signs), None))
            for case in self.cases
        ]
        return [(f"{name}, {one.what}", number(one.error)) for name, one in found if one]

    @property
    def not_looked_at(self) -> str:
        """Sentence about stages that the subject's level hides; empty if nothing was compared."""
        level = self.run.level if self.run else None
        return Level(int(level[1:])).hides if level else ""

    @property
    def not_offered(self) -> dict[str, list[str]]:
        """Comparisons that the subject does not offer, by the level that includes them."""
        found: dict[str, list[str]] = {}
        named = (one.what for one in self._compared() if one.reason == Reason.NOT_OFFERED)
        for what in dict.fromkeys(named):
            found.setdefault(str(level_of_comparison(what)), []).append(what)
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[Missing]:
        """Missing things, each reason once."""
        found = Counter(
            (what, test.sent.reason or test.reason, test.outcome not in FAILING)
            for test in self.tests.values()
            if (what := test.sent.left_out) in MISSING and what
        )
        return [Missing(what, why, tests, allowed) for (what, why, allowed), tests in found.items()]

    @property
    def skips(self) -> Mapping[str, int]:
        """Number of skipped tests by reason, without those that :attr:`missing` and :attr:`above` count."""
        skipped = (test for test in self.tests.values() if test.outcome == "skipped" and not test.comparisons)
        return Counter(test.reason for test in skipped if test.sent.left_out not in (*MISSING, *LEVELS))

    @property
    def above(self) -> Mapping[str, int]:
        """Number of tests that were skipped for a level that the subject does not offer, by level."""
        needed = Counter(test.sent.left_out or "" for test in self.tests.values())
        return {level: needed[level] for level in LEVELS if needed[level]}

    @property
    def known_failures(self) -> Mapping[str, int]:
        """Number of tests that failed as expected, by reason."""
        return Counter(test.reason for test in self.tests.values() if test.outcome == "xfailed")

    @property
    def spending(self) -> Spending | None:
        """Losses under the budget; None if no budget is set."""
        return Spending.of(self.cases)

    @property
    def promised(self) -> bool:
        """Whether any test was meant to compare, and not only to make its own assertions."""
        return any(test.sent.promised for test in self.tests.values())

    @property
    def not_compared(self) -> Sequence[str]:
        """Planned cases without any comparison, if other cases have some."""
        made = {test.case_id for test in self.tests.values() if test.has_compared}
        found = [case for case, *_ in self.left.listed]
        return [case for case in found if case not in made] if made & {*found} else []

    @property
    def looser(self) -> dict[str, Looser]:
        """Limits above the usual ones, by name."""
        found: dict[str, Looser] = {}
        for test in self.tests.values():
            for name, (allowed, usual, by) in test.sent.looser.items():
                own = Looser(allowed, usual, by, 0)
                one = max(found.get(name, own), own, key=lambda one: one.allowed)
                found[name] = replace(one, tests=found.get(name, own).tests + 1)
        return found

    def _compared(self) -> Iterator[ComparisonResult]:
        for test in self.tests.values():
            yield from test.comparisons


def suite_of(nodeid: str) -> str:
    """Return the folder of a test's file, or the file if it has none."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parent.name or path.name


def level_of_comparison(what: str) -> Level:
    """Return the level at which a subject offers ``what``."""
    is_block = TensorName.parse(what).block is not None
    return Level.MODULES if is_block else LEVEL_OF.get(stage_of(what, ""), Level.STAGES)
