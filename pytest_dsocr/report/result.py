"""Verdict of a run, and its result for the file and the views."""

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec.structs import replace

import pytest_dsocr
from pytest_dsocr.base.own_files import own_sha256
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.verdict import SEVERITY, Reason, Verdict
from pytest_dsocr.records.provenance import versions
from pytest_dsocr.report.collection import Collected
from pytest_dsocr.report.document import Environment, RunJson
from pytest_dsocr.report.file import FINISHED, OF_PYTEST, Ending, gravest, head, now
from pytest_dsocr.report.outcomes import not_by_block, remarks
from pytest_dsocr.report.words import by_engine, compression_of, readings_in_words, reproduced_by

MOST_NAMED = 3
MOST_NOT_ENDED = 100
"""Number of unfinished tests that the file names at most."""
NOTHING_COMPARED = "no comparison was made"
ONLY_EXPECTED = "only tests that are expected to fail compared anything"


class RunResult(Collected):
    """Collected tests and cases, and the verdict so far."""

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
        timed = self.perf if self.perf and self.perf["median_ms"] else None
        is_judged = timed is None or timed["judgements"] or timed.get("accepted")
        passes = ("" if is_judged else "no times judged, all else ") + "passes" + "".join(self._but) + flaky
        return ("; ".join(self.why_not) or passes) + by_engine(self.cases)

    @property
    def _but(self) -> Iterator[str]:
        """Restrictions of a pass: budgets, looser limits, and parts that were not compared."""
        if self.spending:
            yield f" {self.spending.in_short}"
        if self.looser:
            yield f" within looser limits: {', '.join(one.in_words(name) for name, one in self.looser.items())}"
        if self.run and self.run.shard:
            yield f", shard {self.run.shard.replace('/', ' of ')} by {self.run.given_by.get('shard')}"
        if left := self.not_compared:
            yield from (f", {one} not compared" for one in _cases_in_words(self.left.listed, left))
        elif self.left.tests:
            yield f", {self.left.tests} of {count(self.left.of, 'test')} left out"
        if refused := {one for test in self.tests.values() if (one := test.sent.refused)}:
            yield f", not offered: {listed(sorted(refused))}"
        yield from (f", {what} not offered" for what in self.offered_in_part)
        if stages := dict.fromkeys(stage for found in not_by_block(self.cases).values() for stage in found):
            yield f", blocks of {listed([*stages])} not compared"

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

    @cached_property
    def ended(self) -> str:
        """Time of the first complete result; every file and summary has the same."""
        return now()

    @property
    def document(self) -> RunJson:
        """The whole result, for the file and for the views."""
        by_state = {test for one in self.causes if one.is_state for test in one.tests}
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
            budget=self.spending,
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
            notes=[*self.notes, *remarks(self.cases, self.run)],
            causes=self.causes,
            cases=self.cases,
            tests=[
                test.judged(self.options, self.root, is_alone=name not in by_state) for name, test in self.tests.items()
            ],
            tool_sha256=own_sha256(),
            reproduce=reproduced_by([*self.tests], self.options, self.named, self.root),
        )


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
