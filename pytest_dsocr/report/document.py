"""The result of a finished run, as ``dsocr.json`` keeps it and every view shows it."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypedDict

from msgspec import Struct

from pytest_dsocr.base.reading import Count, Finite, Format, Identity, Ratio, Time
from pytest_dsocr.report.budget import Spending
from pytest_dsocr.report.case_result import CaseResult
from pytest_dsocr.report.cause import FailureCause
from pytest_dsocr.report.file import HEADS, Ending, ResultHead
from pytest_dsocr.report.outcomes import JudgedTest
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.worker_report import Deselection, ProcessTimes


class Missing(Struct, frozen=True):
    """Something that was missing, and whether that was allowed."""

    what: str
    """A word of ``--dsocr-allow-missing``."""
    why: str
    tests: int
    """Number of tests that could not compare."""
    allowed: bool
    """Whether the run allowed this; the tests were then skipped instead of failing."""


class Looser(Struct, frozen=True):
    """A limit that allowed more than usual."""

    allowed: int | float
    usual: int | float
    by: str
    """Source of the limit; empty for a marker of the test."""
    tests: int
    """Number of tests with this limit."""

    def in_words(self, name: str) -> str:
        """Return the limit, the usual one in brackets, and its source."""
        return f"{name}={self.allowed:g} ({self.usual:g}){' by ' * bool(self.by)}{self.by}"


class Environment(Struct, frozen=True):
    """The machine of the run's controller."""

    platform: str
    versions: dict[str, str]


class RunJson(ResultHead, kw_only=True, frozen=True):
    """A finished run. The totals are :class:`~pytest_dsocr.report.result.RunResult`'s."""

    pytest_dsocr: str
    verdict: str
    passes: bool
    ended_as: Ending
    exit_status: int | None
    """pytest's own."""
    planned: int
    not_ended: list[str]
    uncollected: list[str]
    others_failed: bool
    comparisons: int
    counts: dict[str, Count]
    """Number of comparisons by verdict, the gravest first."""
    run: RunSides | None
    compression: dict[str, int | float] | None
    readings: str
    looser: dict[str, Looser]
    budget: Spending | None
    left: Deselection
    perf: dict[str, Any] | None
    """Result of :meth:`~pytest_dsocr.timing.run.PerfRun.to_json`."""
    elapsed: list[ProcessTimes]
    environment: Environment
    not_looked_at: str
    not_offered: dict[str, list[str]]
    above: dict[str, int]
    missing: list[Missing]
    flaky: list[str]
    skips: dict[str, int]
    known_failures: dict[str, int]
    notes: list[str]
    causes: list[FailureCause]
    cases: list[CaseResult]
    tests: list[JudgedTest]
    tool_sha256: str
    """Hash of the Python files of this package and its suites, as the run found them."""
    reproduce: list[str]
    """Command that compares the same again; empty if tests of others took part, or times were measured."""


class _Settings(TypedDict):
    tolerances: dict[str, Finite]
    quantization_budget: dict[str, Finite]
    max_slowdown: dict[str, Finite]
    max_new_tokens: Count | None
    repeat: Count


class _Judgement(TypedDict):
    quantity: str
    pace: str
    ratio: Ratio | None
    low: Ratio | None
    high: Ratio | None
    limit: Finite
    before_ms: Time | None
    after_ms: Time | None


class _Baseline(TypedDict):
    made: str
    commit: str | None


class _Perf(TypedDict):
    identity: Identity
    median_ms: dict[str, Time]
    quartiles_ms: dict[str, tuple[Time, Time]]
    exact: dict[str, int]
    judgements: list[_Judgement]
    baseline: _Baseline | None


class _Parts(TypedDict):
    settings: _Settings | None
    perf: _Perf | None


RESULTS = Format(RunJson, HEADS.advice)
PARTS = Format(_Parts, RESULTS.advice)
"""Format of the values that other modules define, as far as they are read again."""


def finished(result: Mapping[str, Any], where: str | PathLike[str]) -> RunJson:
    """Return a finished run from its JSON values; raise ``DsocrError`` if a field is missing or wrong."""
    found = RESULTS.convert(result, where)
    settings = found.run.settings if found.run else None
    PARTS.convert({"settings": settings, "perf": found.perf}, where)
    return found
