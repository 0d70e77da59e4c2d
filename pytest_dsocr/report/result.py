"""The result of one run: what its tests come to, and whether it passes."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import starmap
from pathlib import PurePosixPath
from typing import Any, TypedDict

import pytest_dsocr
from pytest_dsocr.base.words import count, listed
from pytest_dsocr.compare.verdict import SEVERITY, Reason, Symptom, Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.records.config import MISSING, Level
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.provenance import versions
from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.causes import FailureCause, causes_of
from pytest_dsocr.report.collection import Collected
from pytest_dsocr.report.file import FINISHED, OF_PYTEST, Ending, gravest, head, now
from pytest_dsocr.report.outcomes import FAILING, TestResult, remarks
from pytest_dsocr.report.payload import ComparisonPayload, number
from pytest_dsocr.report.words import by_engine, compression_of, readings_in_words

MOST_NAMED = 3
MOST_NOT_ENDED = 100
"""How many tests that did not end are named in the file."""
NOTHING_COMPARED = "no comparison was made"
ONLY_EXPECTED = "nothing was compared but by tests that are expected to fail"
LEVELS = tuple(map(str, Level))
OF_INPUTS = frozenset((*COMPARED, "inputs"))
OF_TEXT = frozenset(("read", "text", "spans", "boxes", "result.mmd", "artefacts"))


class Missing(TypedDict):
    """Something that was missing, and whether that was allowed."""

    what: str
    """A word of ``--dsocr-may-miss``."""
    why: str
    tests: int
    """How many tests could not compare."""
    allowed: bool
    """Whether the run allowed it to be missing, so that the tests were skipped and did not fail."""


class Looser(TypedDict):
    """A limit that allowed more than usual."""

    allowed: float
    usual: float
    by: str
    """Where the limit was given; empty of a test's own marker."""
    tests: int
    """How many tests had it."""


class RunResult(Collected):
    """What was collected of a run, and its verdict; of a run that goes on, so far."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each verdict was given."""
        return Counter(one["verdict"] for one in self._compared())

    @property
    def made(self) -> int:
        """Comparisons made: NOT-COMPARED is none."""
        return sum(number for verdict, number in self.counts.items() if verdict != Verdict.NOT_COMPARED)

    @property
    def has_compared(self) -> bool:
        """Whether a comparison was made by a test that is to pass."""
        return any(test.has_compared for test in self.tests.values() if test.outcome != "xfailed")

    @property
    def worst_drift(self) -> tuple[float, str]:
        """The largest relative error of a tensor that is inside its tolerance, and the suite that measured it."""
        drifts = (
            (number(one["error"]), suite_of(test.nodeid))
            for test in self.tests.values()
            for one in test.comparisons
            if one["verdict"] == Verdict.DRIFT
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
        """How many tests ended with an outcome that pytest itself does not have, by outcome."""
        return Counter(test.outcome for test in self.tests.values() if test.is_odd)

    @property
    def causes(self) -> list[FailureCause]:
        """The failures by their cause."""
        return causes_of(self.cases, [test for test in self.tests.values() if test.why])

    @property
    def suspicious(self) -> list[tuple[str, float]]:
        """Where each case's drift is first larger than that of correct implementations, and how large it is there."""
        found = [
            (case["id"], next((one for one in case["comparisons"] if Symptom.SUSPICIOUS in one["signs"]), None))
            for case in self.cases
        ]
        return [(f"{name}, {one['what']}", number(one["error"])) for name, one in found if one]

    @property
    def not_looked_at(self) -> str:
        """What no test can look at, as the subject offers no more; empty where it does, or nothing was compared."""
        level = self.run["level"] if self.run else None
        return Level(int(level[1:])).hides if level else ""

    @property
    def not_offered(self) -> dict[str, list[str]]:
        """What the subject does not offer, by the level that would."""
        found: dict[str, list[str]] = {}
        named = (one["what"] for one in self._compared() if one["reason"] == Reason.NOT_OFFERED)
        for what in dict.fromkeys(named):
            found.setdefault(str(level_of_comparison(what)), []).append(what)
        return dict(sorted(found.items()))

    @property
    def missing(self) -> list[Missing]:
        """What was missing, each reason once."""
        found = Counter(
            (what, test.payload.get("reason") or test.reason, test.outcome not in FAILING)
            for test in self.tests.values()
            if (what := test.payload.get("left_out")) in MISSING and what
        )
        return [Missing(what=one[0], why=one[1], tests=tests, allowed=one[2]) for one, tests in found.items()]

    @property
    def skips(self) -> Mapping[str, int]:
        """How many tests were skipped, by reason, without those for which something was missing or not offered."""
        skipped = (test for test in self.tests.values() if test.outcome == "skipped" and not test.comparisons)
        return Counter(test.reason for test in skipped if test.payload.get("left_out") not in (*MISSING, *LEVELS))

    @property
    def above(self) -> Mapping[str, int]:
        """How many tests were skipped as they need a level that the subject does not offer, by that level."""
        needed = Counter(test.payload.get("left_out") or "" for test in self.tests.values())
        return {level: needed[level] for level in LEVELS if needed[level]}

    @property
    def known_failures(self) -> Mapping[str, int]:
        """How many tests failed as expected, by reason."""
        return Counter(test.reason for test in self.tests.values() if test.outcome == "xfailed")

    @property
    def spending(self) -> Spending | None:
        """What was lost to fewer bits; None where no budget is set."""
        return Spending.of(self.cases)

    @property
    def promised(self) -> bool:
        """Whether any test was to compare, and not only to assert something of its own."""
        return any(test.payload.get("promised", True) for test in self.tests.values())

    @property
    def why_not(self) -> Sequence[str]:
        """Why the run does not pass; nothing where it does.

        It passes where no comparison is WRONG or lacking, but those of expected failures, pytest's own exit status is
        0, every test that was planned has ended, and something was compared.
        """
        nothing = [] if self.has_compared else [ONLY_EXPECTED if self.made else NOTHING_COMPARED]
        return [*nothing, *self._in_the_way]

    @property
    def _in_the_way(self) -> Iterator[str]:
        """Why it does not pass, whether or not anything was compared."""
        if self.failing:
            yield f"{len(self.failing)} of {count(len(self.tests), 'test')} failed"
        for case in self.cases:
            if unjudged := case["unjudged"]:
                yield f"{listed(unjudged, 3)} of {case['id']} WRONG, and no test judged it"
        for word, tests in self.odd.items():
            yield f"{count(tests, 'test')} ended as {word!r}"
        yield from self.plan.why_not(failing=bool(self.failing))
        if (spending := self.spending) and (why := spending.why_not):
            yield why

    @property
    def ended_as(self) -> Ending:
        """How the run ended; where a test of ours found the model wrong, it is that, whatever else happened."""
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
        """Whether pytest is to fail: tests that only assert something of their own may well have compared nothing."""
        return bool(self.tests) and (any(self._in_the_way) or (self.promised and not self.has_compared))

    @property
    def verdict(self) -> str:
        """``passes``, or why not; and whether the engine answered for the reference."""
        flaky = f"; {count(len(self.flaky), 'test')} FLAKY" if self.flaky else ""
        passes = ("no times judged, all else " if self.is_untimed else "") + "passes" + "".join(self._but) + flaky
        return ("; ".join(self.why_not) or passes) + by_engine(self.cases)

    @property
    def _but(self) -> Iterator[str]:
        """What a run that passes has not shown that it would have shown by itself: how far apart, and what was left."""
        if self.spending:
            yield f" {self.spending.in_short}"
        if self.looser:
            yield f" within looser limits: {', '.join(starmap(_in_words, self.looser.items()))}"
        if self.run and self.run["shard"]:
            yield f", shard {self.run['shard'].replace('/', ' of ')} by {self.run['given_by'].get('shard')}"
        if left := self.not_compared:
            yield from (f", {one} not compared" for one in _cases_in_words(self.left["listed"], left))
        elif self.left["tests"]:
            yield f", {self.left['tests']} of {count(self.left['of'], 'test')} left out"
        if refused := {one for test in self.tests.values() if (one := test.payload.get("refused"))}:
            yield f", not offered: {listed(sorted(refused))}"
        yield from (f", {what} not offered" for what in self.offered_in_part)

    @property
    def offered_in_part(self) -> Iterator[str]:
        """Yield what the subject offered of a part of the run: some steps, or some cases and not the others."""
        cases = [case for case in self.cases if case["id"] not in self.not_compared]
        sides = [case["tokens"] for case in cases]
        steps = [(int(one["reference"]), int(one["subject"])) for one in sides if one["subject"] is not None]
        if left := sum(max(0, most - own) for most, own in steps):
            yield f"{left} of {count(sum(most for most, _ in steps), 'step')}"
        made, absent = Counter[str](), Counter[str]()
        for one in (one for case in cases for one in case["comparisons"]):
            made[one["what"]] += one["verdict"] != Verdict.NOT_COMPARED
            absent[one["what"]] += one["reason"] == Reason.NOT_OFFERED
        for number_absent in sorted({*absent.values()} - {0}):
            if names := [what for what in absent if absent[what] == number_absent and made[what]]:
                yield f"{listed(names, MOST_NAMED)} of {number_absent} of {count(len(cases), 'case')}"

    @property
    def is_untimed(self) -> bool:
        """Whether times were taken of which none was judged, as there is no baseline, nor became one."""
        return bool(self.perf and self.perf["median_ms"] and not (self.perf["judgements"] or self.perf.get("accepted")))

    @property
    def not_compared(self) -> Sequence[str]:
        """The cases that were to be compared and of which no test compared anything, where others were."""
        made = {test.case_id for test in self.tests.values() if test.has_compared}
        found = [case for case, *_ in self.left["listed"]]
        return [case for case in found if case not in made] if made & {*found} else []

    @property
    def looser(self) -> dict[str, Looser]:
        """The limits that allowed more than the usual ones, by name."""
        found: dict[str, Looser] = {}
        for test in self.tests.values():
            for name, (allowed, usual, by) in test.payload.get("looser", {}).items():
                own = Looser(allowed=allowed, usual=usual, by=by, tests=0)
                one = max(found.get(name, own), own, key=lambda one: one["allowed"])
                found[name] = {**one, "tests": found.get(name, own)["tests"] + 1}
        return found

    @cached_property
    def ended(self) -> str:
        """When the whole result was first written; each file and summary has the same time."""
        return now()

    def to_json(self) -> dict[str, Any]:
        """Return the whole result as JSON values."""
        return {
            **head(self.identity, FINISHED, self.ended),
            "pytest_dsocr": pytest_dsocr.__version__,
            "verdict": self.verdict,
            "passes": not self.why_not,
            "ended_as": self.ended_as,
            "exit_status": self.plan.exit_status,
            "planned": len(self.plan.planned),
            "not_ended": self.plan.not_ended[:MOST_NOT_ENDED],
            "uncollected": self.plan.uncollected,
            "others_failed": self.plan.others_failed,
            "comparisons": self.made,
            "counts": {str(verdict): self.counts.get(verdict, 0) for verdict in SEVERITY[::-1]},
            "run": self.run,
            "compression": compression_of(self.cases),
            "readings": readings_in_words(self.cases),
            "looser": self.looser,
            "budget": spending.to_json() if (spending := self.spending) else None,
            "left": {**self.left, "not_compared": self.not_compared},
            "perf": self.perf,
            "elapsed": [self.elapsed[name] for name in sorted(self.elapsed)],
            "environment": {"platform": platform.platform(), "versions": versions()},
            "not_looked_at": self.not_looked_at,
            "not_offered": self.not_offered,
            "above": self.above,
            "missing": self.missing,
            "flaky": [test.nodeid for test in self.flaky],
            "skips": dict(self.skips),
            "known_failures": dict(self.known_failures),
            "notes": [*self.notes, *remarks(self.cases)],
            "causes": self.causes,
            "cases": self.cases,
            "tests": [test.to_json(self.options, self.root) for test in self.tests.values()],
        }

    def _compared(self) -> Iterator[ComparisonPayload]:
        for test in self.tests.values():
            yield from test.comparisons


def _cases_in_words(listed_cases: Sequence[Sequence[str]], left: Sequence[str]) -> Iterator[str]:
    """Name pages, presets and prompts of which nothing was compared, then single cases."""
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
    return f"{name}={one['allowed']:g} ({one['usual']:g}){' by ' * bool(one['by'])}{one['by']}"


def suite_of(nodeid: str) -> str:
    """Return the folder that a test's file is in; the file where that has none."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parent.name or path.name


def level_of_comparison(what: str) -> Level:
    """Return the level at which a subject offers ``what``."""
    if TensorName.parse(what).block is not None:
        return Level.MODULES
    if what in OF_TEXT:
        return Level.TEXT
    return Level.INPUTS if what in OF_INPUTS else Level.STAGES
