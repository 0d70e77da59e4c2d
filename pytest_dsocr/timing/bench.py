"""Measurement of two versions in separate, interleaved processes, until each quantity is judged or a limit is met."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from msgspec import convert

from pytest_dsocr.base.words import HASH_CHARACTERS, aligned, count, entry, listed
from pytest_dsocr.subjects.loading import ENGINES, VENDOR
from pytest_dsocr.timing.candidate import SUBJECT, opened
from pytest_dsocr.timing.counts import CountChange, exact_changes, other_changes, text_change
from pytest_dsocr.timing.identity import identity_of
from pytest_dsocr.timing.limits import Watcher
from pytest_dsocr.timing.rounds import Measured
from pytest_dsocr.timing.side import TimedSide, ask_all
from pytest_dsocr.timing.statistics import NO_SLOWER, Judgement, TimingVerdict
from pytest_dsocr.timing.trace import TraceDifference, difference
from pytest_dsocr.timing.traced import TraceTable
from pytest_dsocr.timing.turns import ENDED, LABELS, Task, absolute, asked_again, started, timed

HEAD = ("stage", "A ms", "B ms", "B / A", "interval", "allowed", "verdict")
LEFT = ("stage", "verdict")


class BenchStatus(IntEnum):
    """The exit status of a comparison."""

    NOT_SLOWER = 0
    SLOWER = 1
    UNDECIDED = 2
    NOT_RUN = 3


@dataclass(frozen=True)
class Bench:
    """Result of a bench."""

    a: Measured
    b: Measured
    judgements: tuple[Judgement, ...]
    apart: str = ""
    """Difference between the sides' texts; empty if they are equal."""
    is_timed: bool = True
    """False if only counted quantities are compared."""
    cut_short: str = ""
    """Why fewer rounds were taken than could have helped."""
    trace: TraceDifference | None = None
    """Difference between one traced page of each side, if tracing was requested."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Quantities whose slow-down is accepted, each with its reason."""

    @property
    def changes(self) -> list[CountChange]:
        """The exact quantities that differ."""
        return exact_changes(self.a.exact, self.b.exact)

    @property
    def is_same_work(self) -> bool:
        """Whether both sides did the same work; otherwise times mean nothing."""
        return not self.apart and not any(change.is_work for change in self.changes)

    @property
    def decision(self) -> tuple[BenchStatus, str]:
        """The exit status and why, in words: more of what is counted is worse, whether or not times could be judged."""
        undecided = BenchStatus.UNDECIDED
        if not self.is_same_work:
            return undecided, "could not tell: the sides do different work, so that their times do not compare"
        known = [one for one in self._of(TimingVerdict.SLOWER) if one in self.accepted]
        slower = [one for one in self._of(TimingVerdict.SLOWER) if one not in self.accepted]
        slower += [f"{one.quantity} (counted)" for one in self.changes if one.is_worse]
        if slower:
            return BenchStatus.SLOWER, f"B is slower: {listed(slower)}"
        if open_ones := self._of(TimingVerdict.AMBIGUOUS, TimingVerdict.NOT_COMPARED):
            return undecided, f"could not tell: {listed(open_ones)}{self.cut_short and f' ({self.cut_short})'}"
        if not self.is_timed:
            return BenchStatus.NOT_SLOWER, "B counts no more than A"
        if not self.judgements:
            whys = dict.fromkeys(why for side in (self.a, self.b) for one in side.rounds for why in one.spoilt)
            return undecided, f"could not tell: no round was fit for use: {listed([*whys]) or 'none was taken'}"
        if known:
            return BenchStatus.NOT_SLOWER, f"B is slower as accepted: {listed(known)}"
        if faster := self._of(TimingVerdict.FASTER):
            return BenchStatus.NOT_SLOWER, f"B is faster: {listed(faster)}"
        return BenchStatus.NOT_SLOWER, "B is not slower" if self._of(TimingVerdict.NOT_SLOWER) else "B is the same"

    @property
    def status(self) -> BenchStatus:
        """The exit status."""
        return self.decision[0]

    @property
    def verdict(self) -> str:
        """The status in words."""
        return self.decision[1]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "verdict": self.verdict,
            "status": int(self.status),
            "apart": self.apart,
            "cut_short": self.cut_short,
            "judgements": [one.to_json() for one in self.judgements],
            "accepted": {**self.accepted},
            "changes": [change.text for change in self.changes],
            "trace": self.trace and self.trace.to_json(),
            "a": asdict(self.a),
            "b": asdict(self.b),
        }

    def _of(self, *paces: TimingVerdict) -> list[str]:
        return [one.quantity for one in self.judgements if one.pace in paces]


def compare(names: Sequence[str], task: Task, watch: Watcher, *, is_timed: bool = True) -> Bench:
    """Compare two named sides; without times, compare only counts, and judge nothing.

    Raises:
        DsocrError: if one of the two cannot run, or would not run the code that it is named for.
    """
    ends_s = time.monotonic() + task.seconds
    with ExitStack() as stack:
        candidates = [stack.enter_context(opened(name)) for name in names]
        with started(candidates, task, watch) as (both, machines):
            watch("counting", 0, task.most_rounds)
            texts, exact = ask_all(both, "read"), [side.ask("exact") for side in both]  # a GPU's work is timed as well
            pairs, judgements, cut_short = timed(both, exact, task, watch, ends_s) if is_timed else ([], [], "")
            trace = _traced(both, task, judgements, watch) if task.traces and not cut_short.startswith(ENDED) else None
        if not task.setup["device"].startswith("cuda") and not cut_short.startswith(ENDED):
            judgements = asked_again(candidates, exact, judgements, task, watch, ends_s)
    identities = [_identity(side, task, found) for side, found in zip(both, machines, strict=True)]
    a, b = (Measured(identities[k], exact[k], tuple(pair[k] for pair in pairs)) for k in (0, 1))
    return Bench(a, b, tuple(judgements), text_change(*map(str.strip, texts)), is_timed, cut_short, trace)


def _traced(both: Sequence[TimedSide], task: Task, judged: Sequence[Judgement], watch: Watcher) -> TraceDifference:
    """Trace each side once, one after the other; both know both subjects' packages for code that is to blame."""
    specs = [absolute(side.candidate.subject or task.subject, VENDOR) for side in both]
    own = [__package__ if one in ENGINES else one for one in specs]
    packages = [one.partition(":")[0].partition(".")[0] for one in own if not one.startswith(VENDOR)]
    tables = []
    for side in both:
        watch(f"tracing {side.label}", 0, task.most_rounds)
        trees = [*map(str, side.candidate.path), *(one.removeprefix(VENDOR) for one in own if one.startswith(VENDOR))]
        file = f"{task.traces}/{side.label}.trace.json"
        tables.append(convert(side.ask("trace", file=file, trees=trees, packages=packages), TraceTable))
    return difference(tables[0], tables[1], [one.quantity for one in judged if one.is_change])


def _identity(side: TimedSide, task: Task, found: Mapping[str, Any]) -> dict[str, Any]:
    weights = {"checkpoint": task.setup["checkpoint"], "checkpoint_sha256": task.checkpoint_sha256}
    how = {"dtype": task.setup["dtype"], "attention": task.setup["attention"], "threads": found["threads"]}
    code = {"name": side.candidate.name, "commit": side.candidate.commit}
    where = {"machine": found["machine"], "versions": found["versions"]}
    return identity_of(side.candidate.subject or task.subject, weights | how, task.reading, **code, **where)


def lines_of(bench: Bench) -> Iterator[str]:
    """Yield the comparison for a terminal, without the verdict."""
    yield from sides_of(bench)
    yield ""
    if bench.judgements:
        yield from aligned([HEAD, *map(row_of, bench.judgements)], LEFT)
        yield ""
    yield from differences_of(bench)


def sides_of(bench: Bench) -> Iterator[str]:
    """Yield what was compared: both sides, the page, the rounds."""
    for label, side in zip(LABELS, (bench.a, bench.b), strict=True):
        yield from entry(label, _side(side))
    page = bench.a.identity["page"]
    yield from entry("page", f"{page['name']}, {page['preset']}, up to {count(page['max_new_tokens'], 'token')}")
    yield from entry("rounds", f"{count(len(bench.a.rounds), 'pair')} taken in turn, A and B first by turns")


def differences_of(bench: Bench) -> Iterator[str]:
    """Yield the differences other than times, or that there are none."""
    if bench.cut_short:
        yield from entry("cut short", bench.cut_short)
    if bench.apart:
        yield from entry("apart", bench.apart)
    else:
        counts = "" if bench.changes else f", and all {len(bench.a.exact)} quantities that are counted"
        yield from entry("equal", f"the text that is read{counts}")
    paces = {one.quantity: one.pace for one in bench.judgements}
    for name, why in bench.accepted.items():
        mended = "; no longer slower: remove its line" if paces.get(name) in NO_SLOWER else ""
        yield from entry("accepted", f"{name}: {why}{mended}")
    for change in (*(one.text for one in bench.changes), *other_changes(bench.a, bench.b)):
        yield from entry("changed", change)


def _side(side: Measured) -> str:
    """Name what a side ran."""
    identity = side.identity
    commit, _, changed = str(identity["commit"]).partition("-")
    what = [str(identity["name"])]
    if commit:
        what.append(f"commit {commit[:HASH_CHARACTERS]}" + (" with changes" if changed else ""))
    if not str(identity["name"]).startswith(f"{SUBJECT}{identity['subject']}"):
        what.append(str(identity["subject"]))
    setup = identity["setup"]
    what += [setup["checkpoint"], identity["machine"].get("gpu", "cpu"), setup["dtype"], setup["attention"]]
    return ", ".join(what)


def row_of(one: Judgement) -> tuple[str, ...]:
    """Return the row of one quantity."""
    if one.pace is TimingVerdict.NOT_COMPARED:
        return (one.quantity, "", "", "", "", "", f"{one.pace}: {one.reason}")
    more = one.reason or (f"{one.wanted} pairs might tell" if one.pace is TimingVerdict.AMBIGUOUS else "")
    return (
        one.quantity,
        f"{one.before_ms:.4g}",
        f"{one.after_ms:.4g}",
        f"{one.ratio:.3f}",
        f"{one.low:.3f} to {one.high:.3f}",
        f"{1 + one.limit:.3f}",
        f"{one.pace}{more and f'; {more}'}",
    )
