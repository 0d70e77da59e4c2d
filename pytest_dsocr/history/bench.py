"""Results of ``dsocr bench`` as nights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from pytest_dsocr.base.reading import Commit, Fact, Format, Moment
from pytest_dsocr.history.record import OF_SERIES, Night, Timed
from pytest_dsocr.timing.identity import machine_name
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.run import spreads_of
from pytest_dsocr.timing.statistics import TimingVerdict


@dataclass(frozen=True)
class BenchResult:
    """Parts of a file by ``dsocr bench --out`` that a history needs."""

    started: Moment
    verdict: str
    status: int
    b: Measured
    judgements: Sequence[_Judged]
    accepted: Mapping[str, str] = field(default_factory=dict)


class _Judged(TypedDict):
    quantity: str
    pace: str


class _Setup(TypedDict):
    checkpoint: str
    dtype: str
    attention: str


class _Identity(TypedDict):
    subject: str
    commit: Commit
    machine: dict[str, Fact]
    setup: _Setup


BENCHES = Format(BenchResult, "make it again, dsocr bench --out")
IDENTITIES = Format(_Identity, BENCHES.advice)


def night_of_bench(path: Path) -> Night:
    """Return the second side of a comparison as a night, to show its commit among those of runs.

    Raises:
        DsocrError: if the file was not written by ``dsocr bench --out``.
    """
    result = BENCHES.read(path)
    IDENTITIES.convert(result.b.identity, path)
    identity, setup = result.b.identity, result.b.identity["setup"]
    series = {name: identity.get(name) for name in OF_SERIES}
    verdicts = {one["quantity"]: one["pace"] for one in result.judgements}
    accepted = {name: why for name, why in result.accepted.items() if verdicts.get(name) == TimingVerdict.SLOWER}
    device = identity["machine"].get("gpu", "cpu")
    return Night(
        started=result.started,
        ended=result.started,
        commit=str(identity["commit"]),
        word={0: "passes", 1: "slower"}.get(result.status, "incomplete"),
        verdict=f"bench: {result.verdict}",
        subject=str(identity["subject"]),
        setting=f"{setup['checkpoint']}/{device}-{setup['dtype']}-{setup['attention']}",
        machine=machine_name(identity["machine"]),
        times=[Timed(series, spreads_of(result.b), verdicts, accepted)],
    )
