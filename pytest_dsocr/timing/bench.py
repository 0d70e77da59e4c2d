"""Measurement of two versions in separate, interleaved processes, until each quantity is judged or a limit is met."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from pytest_dsocr.base.words import HASH_CHARACTERS, aligned, count, entry, listed
from pytest_dsocr.timing.afterwards import Afterwards, reserve
from pytest_dsocr.timing.budget import TimeBudget
from pytest_dsocr.timing.candidate import SUBJECT, opened
from pytest_dsocr.timing.counts import OF_TEXT, CountChange, exact_changes, other_changes
from pytest_dsocr.timing.identity import identity_of
from pytest_dsocr.timing.limits import Watcher
from pytest_dsocr.timing.outlook import outlook
from pytest_dsocr.timing.pairs import ENDED
from pytest_dsocr.timing.rounds import OF_WHOLE, PAGE, Measured, Round
from pytest_dsocr.timing.side import TimedSide
from pytest_dsocr.timing.statistics import NO_SLOWER, Judgement, TimingVerdict
from pytest_dsocr.timing.trace import TraceDifference
from pytest_dsocr.timing.turns import LABELS, ROUNDS, Task, asked_again, first_pairs, started
from pytest_dsocr.timing.work import work_of

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
    left_out: tuple[str, ...] = ()
    """Parts after the rounds that were not done."""
    forecast: str = ""
    """Number of pairs that would fit and the change that they can show, as estimated from the first pairs."""
    spent: str = ""
    """Seconds of each part."""
    along: int = 0
    """Number of A's tokens that both sides were driven along; 0 if each chose its own."""
    trace: TraceDifference | None = None
    """Difference between one traced page of each side, if tracing was requested."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Quantities whose slow-down is accepted, each with its reason."""

    @property
    def changes(self) -> list[CountChange]:
        """The exact quantities that differ; if texts part, without those of a page that is read freely."""
        found = exact_changes(self.a.exact, self.b.exact)
        return [one for one in found if not (self.apart and self.along and one.quantity in OF_TEXT)]

    @property
    def is_same_work(self) -> bool:
        """Whether both sides did the same work; otherwise times mean nothing."""
        return (not self.apart or self.along > 0) and not any(change.is_work for change in self.changes)

    @property
    def decision(self) -> tuple[BenchStatus, str]:
        """The exit status and why, in words, with what they do not rest on."""
        status, why = self._decision
        lacking = [f"along A's {self.along} tokens"] * bool(self.along) + [f"without {listed(self.left_out)}"] * bool(
            self.left_out
        )
        return status, f"{why} ({', '.join(lacking)})" if lacking else why

    @property
    def _decision(self) -> tuple[BenchStatus, str]:
        """The exit status and why: more of what is counted is worse, whether or not times could be judged."""
        undecided = BenchStatus.UNDECIDED
        if not self.is_same_work:
            return undecided, "could not tell: the sides do different work, so that their times do not compare"
        known = [one for one in self._of(TimingVerdict.SLOWER) if one in self.accepted]
        slower = [one for one in self._of(TimingVerdict.SLOWER) if one not in self.accepted]
        slower += [f"{one.quantity} (counted)" for one in self.changes if one.is_worse]
        if slower:
            return BenchStatus.SLOWER, f"B is slower: {listed(slower)}"
        faster = self._of(TimingVerdict.FASTER)
        if open_ones := self._of(TimingVerdict.AMBIGUOUS, TimingVerdict.NOT_COMPARED):
            known_faster = f"B is faster: {listed(faster)}; " if faster else ""
            why = f" ({self.cut_short})" if self.cut_short else ""
            return undecided, f"{known_faster}could not tell: {listed(open_ones)}{why}"
        if not self.is_timed:
            return BenchStatus.NOT_SLOWER, "B counts no more than A"
        if not self.judgements:
            whys = dict.fromkeys(why for side in (self.a, self.b) for one in side.rounds for why in one.spoilt)
            return undecided, f"could not tell: no round was fit for use: {listed([*whys]) or 'none was taken'}"
        if known:
            return BenchStatus.NOT_SLOWER, f"B is slower as accepted: {listed(known)}"
        if faster:
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
            "along": self.along,
            "cut_short": self.cut_short,
            "left_out": [*self.left_out],
            "forecast": self.forecast,
            "spent": self.spent,
            "judgements": [one.to_json() for one in self.judgements],
            "accepted": {**self.accepted},
            "changes": [change.text for change in self.changes],
            "trace": self.trace and self.trace.to_json(),
            "a": asdict(self.a),
            "b": asdict(self.b),
        }

    def _of(self, *paces: TimingVerdict) -> list[str]:
        return [one.quantity for one in self.judgements if one.pace in paces]


def compare(
    names: Sequence[str],
    task: Task,
    watch: Watcher,
    tell: Callable[[str], None] = lambda text: None,
    *,
    is_timed: bool = True,
) -> Bench:
    """Compare two named sides; without times, compare only counts, and judge nothing.

    Args:
        names: the two sides.
        task: the task of both.
        watch: called during the work.
        tell: receives what the seconds are enough for, after the first pairs.
        is_timed: whether to compare times.

    Raises:
        DsocrError: if one of the two cannot run, or would not run the code that it is named for.
    """
    with ExitStack() as stack:
        candidates = [stack.enter_context(opened(name)) for name in names]
        budget = TimeBudget(task.seconds)
        with started(candidates, task, watch, budget) as (both, machines):
            watch("first reading", 0, task.most_rounds)
            with budget.part("first reading"):
                work = work_of(both)
                work.drive(both)
            pairs, forecast, cut_short = None, "", ""
            if is_timed:
                pairs = first_pairs(both, task, watch, budget, work)
                reserve(budget, pairs.page_s, task)
                tell(forecast := outlook(pairs))
                with budget.part(ROUNDS):
                    cut_short = pairs.settle()
            judgements: Sequence[Judgement] = pairs.judgements if pairs else ()
            after = Afterwards(both, task, budget, watch, is_interrupted=cut_short.startswith(ENDED))
            after.do(pairs.page_s if pairs else 0.0, judgements)
        if not task.setup["device"].startswith("cuda") and not after.is_interrupted:
            judgements = asked_again(candidates, judgements, task, watch, budget, work)
    identities = [_identity(side, task, found) for side, found in zip(both, machines, strict=True)]
    taken = pairs.all if pairs else ()
    a, b = (Measured(identities[k], after.exact[k], tuple(pair[k] for pair in taken)) for k in (0, 1))
    return Bench(
        *(a, b, tuple(judgements), work.apart, is_timed),
        cut_short=cut_short,
        left_out=tuple(after.left_out),
        forecast=forecast,
        spent=budget.text,
        along=len(work.along),
        trace=after.trace,
    )


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
    if bench.a.rounds:
        yield from entry("rounds", f"{_rounds(bench.a.rounds)} taken in turn, A and B first by turns")
    for what, text in (("forecast", bench.forecast), ("seconds", bench.spent)):
        if text:
            yield from entry(what, text)


def _rounds(rounds: Sequence[Round]) -> str:
    """Count pairs, and how many of them read the whole page, if not all do."""
    whole = sum(not {*OF_WHOLE}.isdisjoint(one.wall_ms) for one in rounds)
    return count(len(rounds), "pair") + (f" ({whole} of the whole page)" if 0 < whole < len(rounds) else "")


def differences_of(bench: Bench) -> Iterator[str]:
    """Yield the differences other than times, or that there are none."""
    if bench.cut_short:
        yield from entry("cut short", bench.cut_short)
    if bench.left_out:
        yield from entry("left out", f"{listed(bench.left_out)}: no time was left")
    if bench.apart:
        yield from entry("apart", bench.apart)
    else:
        counts = f", and all {len(bench.a.exact)} quantities that are counted"
        yield from entry("equal", f"the text that is read{'' if bench.changes or not bench.a.exact else counts}")
    if bench.along:
        page = f"; {PAGE} is the sum of its stages" if bench.apart else ""
        yield from entry("same work", f"both were driven along A's {count(bench.along, 'token')}{page}")
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
