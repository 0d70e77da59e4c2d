"""Result of one run: totals over its tests, and its verdict."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from pathlib import PurePosixPath
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

import pytest_dsocr
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.verdict import SEVERITY, Reason, Symptom, Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.records.config import MISSING, Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.provenance import versions
from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.case_result import ComparisonResult, number
from pytest_dsocr.report.causes import FailureCause, causes_of
from pytest_dsocr.report.collection import Collected
from pytest_dsocr.report.document import Environment, Looser, Missing, RunJson
from pytest_dsocr.report.file import FINISHED, OF_PYTEST, Ending, gravest, head, now
from pytest_dsocr.report.outcomes import FAILING, TestResult, remarks
from pytest_dsocr.report.words import by_engine, compression_of, readings_in_words

MOST_NAMED = 3
MOST_NOT_ENDED = 100
"""Number of unfinished tests that the file names at most."""
NOTHING_COMPARED = "no comparison was made"
ONLY_EXPECTED = "only tests that are expected to fail compared anything"
LEVELS = tuple(map(str, Level))
OF_INPUTS = frozenset((*COMPARED, "inputs"))
OF_TEXT = frozenset(("read", "text", "spans", "boxes", "result.mmd", "artefacts"))


class RunResult(Collected):
    """Collected tests and cases, totals over them, and the verdict so far."""

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
    def why_not(self) -> Sequence[str]:
        """Reasons that the run does not pass; empty if it passes.

        A run passes if something was compared, every comparison passes except in expected failures, every planned test
        has ended, and pytest's own exit status is 0.
        """
        nothing = [] if self.has_compared else [ONLY_EXPECTED if self.made else NOTHING_COMPARED]
        return [*nothing, *self._in_the_way]

    @property
    def _in_the_way(self) -> Iterator[str]:
        """Reasons that the run does not pass, besides a lack of comparisons."""
        if self.failing:
            yield f"{len(self.failing)} of {count(len(self.tests), 'test')} failed"
        for case in self.cases:
            if unjudged := case.unjudged:
                yield f"{listed(unjudged, 3)} of {case.id} WRONG, and no test judged it"
        for word, tests in self.odd.items():
            yield f"{count(tests, 'test')} ended as {word!r}"
        yield from self.plan.why_not(failing=bool(self.failing))
        if (spending := self.spending) and (why := spending.why_not):
            yield why

    @property
    def ended_as(self) -> Ending:
        """Ending of the run; a wrong model counts more than any other finding."""
        if not self.why_not:
            return Ending.PASSES
        if ended := OF_PYTEST.get(self.plan.exit_status or 0):
            return ended
        found = [test.ended_as for test in self.tests.values() if test.ended_as is not Ending.PASSES]
        if self.plan.problems or (self.missing and not self.made):
            found.append(Ending.INFRASTRUCTURE)
        if self.plan.gates:
            found.append(Ending.SLOWER)
        ended = Ending.WRONG if self.plan.others_failed else gravest(found)
        return ended if ended is not Ending.SLOWER or self.plan.is_whole else Ending.WRONG

    @property
    def fails(self) -> bool:
        """Whether pytest must fail; a run of tests that were not meant to compare may pass without comparisons."""
        return bool(self.tests) and (any(self._in_the_way) or (self.promised and not self.has_compared))

    @property
    def verdict(self) -> str:
        """``passes`` or the reasons against it; and whether the engine was the reference."""
        flaky = f"; {count(len(self.flaky), 'test')} FLAKY" if self.flaky else ""
        passes = ("no times judged, all else " if self.is_untimed else "") + "passes" + "".join(self._but) + flaky
        return ("; ".join(self.why_not) or passes) + by_engine(self.cases)

    @property
    def _but(self) -> Iterator[str]:
        """Restrictions of a pass: budgets, looser limits, and parts that were not compared."""
        if self.spending:
            yield f" {self.spending.in_short}"
        if self.looser:
            yield f" within looser limits: {', '.join(starmap(_in_words, self.looser.items()))}"
        if self.run and self.run.shard:
            yield f", shard {self.run.shard.replace('/', ' of ')} by {self.run.given_by.get('shard')}"
        if left := self.not_compared:
            yield from (f", {one} not compared" for one in _cases_in_words(self.left.listed, left))
        elif self.left.tests:
            yield f", {self.left.tests} of {count(self.left.of, 'test')} left out"
        if refused := {one for test in self.tests.values() if (one := test.sent.refused)}:
            yield f", not offered: {listed(sorted(refused))}"
        yield from (f", {what} not offered" for what in self.offered_in_part)

    @property
    def offered_in_part(self) -> Iterator[str]:
        """Phrases for steps and comparisons that the subject offered only in part of the run."""
        cases = [case for case in self.cases if case.id not in self.not_compared]
        sides = [(case.tokens["reference"] or 0, case.tokens["subject"]) for case in cases]
        steps = [(most, own) for most, own in sides if own is not None]
        if left := sum(max(0, most - own) for most, own in steps):
            yield f"{left} of {count(sum(most for most, _ in steps), 'step')}"
        made, absent = Counter[str](), Counter[str]()
        for one in (one for case in cases for one in case.comparisons):
            made[one.what] += one.verdict != Verdict.NOT_COMPARED
            absent[one.what] += one.reason == Reason.NOT_OFFERED
        for number_absent in sorted({*absent.values()} - {0}):
            if names := [what for what in absent if absent[what] == number_absent and made[what]]:
                yield f"{listed(names, MOST_NAMED)} of {number_absent} of {count(len(cases), 'case')}"

    @property
    def is_untimed(self) -> bool:
        """Whether times were measured, but neither judged nor accepted as a baseline."""
        return bool(self.perf and self.perf["median_ms"] and not (self.perf["judgements"] or self.perf.get("accepted")))

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

    @cached_property
    def ended(self) -> str:
        """Time of the first complete result; every file and summary has the same."""
        return now()

    @property
    def document(self) -> RunJson:
        """The whole result, for the file and for the views."""
        return RunJson(
            **head(self.identity, FINISHED, self.ended),
            pytest_dsocr=pytest_dsocr.__version__,
            verdict=self.verdict,
            passes=not self.why_not,
            ended_as=self.ended_as,
            exit_status=self.plan.exit_status,
            planned=len(self.plan.planned),
            not_ended=self.plan.not_ended[:MOST_NOT_ENDED],
            uncollected=self.plan.uncollected,
            others_failed=self.plan.others_failed,
            comparisons=self.made,
            counts={str(verdict): self.counts.get(verdict, 0) for verdict in SEVERITY[::-1]},
            run=self.run,
            compression=compression_of(self.cases),
            readings=readings_in_words(self.cases),
            looser=self.looser,
            budget=spending.to_json() if (spending := self.spending) else None,
            left=replace(self.left, not_compared=[*self.not_compared]),
            perf=self.perf,
            elapsed=[self.elapsed[name] for name in sorted(self.elapsed)],
            environment=Environment(platform.platform(), versions()),
            not_looked_at=self.not_looked_at,
            not_offered=self.not_offered,
            above=dict(self.above),
            missing=self.missing,
            flaky=[test.nodeid for test in self.flaky],
            skips=dict(self.skips),
            known_failures=dict(self.known_failures),
            notes=[*self.notes, *remarks(self.cases)],
            causes=self.causes,
            cases=self.cases,
            tests=[test.judged(self.options, self.root) for test in self.tests.values()],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the whole result as JSON values."""
        found: dict[str, Any] = to_builtins(self.document)
        return found

    def _compared(self) -> Iterator[ComparisonResult]:
        for test in self.tests.values():
            yield from test.comparisons


def _cases_in_words(listed_cases: Sequence[Sequence[str]], left: Sequence[str]) -> Iterator[str]:
    """Yield whole pages, presets and prompts without comparisons, then single cases."""
    gone, rest = {*left}, {*left}
    for k, what in enumerate(("page", "preset", "prompt"), 1):
        names = dict.fromkeys(one[k] for one in listed_cases)
        compared = {one[k] for one in listed_cases if one[0] not in gone}
        whole = [name for name in names if name not in compared]
        if whole:
            yield f"{len(whole)} of {count(len(names), what)} ({listed(whole, 3)})"
        rest -= {one[0] for one in listed_cases if one[k] in whole}
    if rest:
        yield f"{len(rest)} of {count(len(listed_cases), 'case')} ({listed(sorted(rest), 3)})"


def _in_words(name: str, one: Looser) -> str:
    return f"{name}={one.allowed:g} ({one.usual:g}){' by ' * bool(one.by)}{one.by}"


def suite_of(nodeid: str) -> str:
    """Return the folder of a test's file, or the file if it has none."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parent.name or path.name


def level_of_comparison(what: str) -> Level:
    """Return the level at which a subject offers ``what``."""
    if TensorName.parse(what).block is not None:
        return Level.MODULES
    if what in OF_TEXT:
        return Level.TEXT
    return Level.INPUTS if what in OF_INPUTS else Level.STAGES
