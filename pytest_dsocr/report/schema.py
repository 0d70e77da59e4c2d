"""Fields of a finished result that are read again, with their limits."""

from typing import Annotated, Literal, NotRequired, TypedDict

from msgspec import Meta

from pytest_dsocr.base.reading import Count, Finite, Format, Identity, Ratio, Time
from pytest_dsocr.report.file import Ending, ResultHead
from pytest_dsocr.report.outcomes import JudgedCase
from pytest_dsocr.report.payload import ComparisonPayload, ElapsedPayload, FaultPayload, Origin, RunPayload
from pytest_dsocr.report.result import Looser, Missing

Picture = Annotated[str, Meta(pattern=r"\A(pages/)?[^/\\\x00]+\Z", max_length=255)]
"""Path below the folder of the result."""
ShardText = Annotated[str, Meta(pattern=r"\A[1-9]\d{0,5}/[1-9]\d{0,5}\Z")]
"""Part of a run, such as ``1/4``."""


class _Provenance(TypedDict):
    date: str
    checkpoint_sha256: str
    vendor_sha256: dict[str, str]


class _Settings(TypedDict):
    tolerances: dict[str, Finite]
    budget: dict[str, Finite]
    slower: dict[str, Finite]
    max_new_tokens: Count | None
    repeat: Count


class _Run(RunPayload):
    level: Literal["L0", "L1", "L2", "L3"] | None  # type: ignore[misc]
    provenance: _Provenance  # type: ignore[misc]
    settings: _Settings  # type: ignore[misc]
    shard: ShardText | None


class _Test(TypedDict):
    nodeid: str
    file: str | None
    line: Count | None
    outcome: str
    ended_as: Ending
    why: str
    reason: str
    case: str | None
    failed_before: Count
    rerun: str | None
    left_out: str | None
    fault: FaultPayload | None
    cause: NotRequired[Origin | None]
    comparisons: list[ComparisonPayload]


class _Case(JudgedCase):
    picture: Picture | None


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
    run: _Run | None
    missing: list[Missing]
    left: _Left
    looser: dict[str, Looser]
    budget: _Budget | None
    perf: _Perf | None
    elapsed: NotRequired[list[ElapsedPayload]]
    environment: _Environment
    flaky: list[str]
    notes: list[str]
    cases: list[_Case]
    tests: list[_Test]


RESULTS = Format(RunJson, "run the suites again")
