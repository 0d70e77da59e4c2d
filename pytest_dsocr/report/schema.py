"""Fields of a finished result that are read again, with their limits."""

from typing import NotRequired, TypedDict

from pytest_dsocr.base.reading import Count, Finite, Format, Identity, Ratio, Time
from pytest_dsocr.report.file import Ending, ResultHead
from pytest_dsocr.report.outcomes import JudgedCase, JudgedTest
from pytest_dsocr.report.payload import ElapsedPayload, RunPayload
from pytest_dsocr.report.result import Looser, Missing


class _Left(TypedDict):
    tests: Count
    not_compared: list[str]


class _Loss(TypedDict):
    name: str
    allowed: Finite | None


class _Budget(TypedDict):
    lost: list[_Loss]


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


class _Environment(TypedDict):
    platform: str
    versions: dict[str, str]


class RunJson(ResultHead):
    """A finished run's ``dsocr.json``."""

    ended_as: Ending  # type: ignore[misc]
    counts: dict[str, Count]
    run: RunPayload | None
    missing: list[Missing]
    left: _Left
    looser: dict[str, Looser]
    budget: _Budget | None
    perf: _Perf | None
    elapsed: NotRequired[list[ElapsedPayload]]
    environment: _Environment
    flaky: list[str]
    notes: list[str]
    cases: list[JudgedCase]
    tests: list[JudgedTest]


RESULTS = Format(RunJson, "run the suites again")
