"""Two versions measured in turn, in processes of their own, until each quantity is judged or the bound is reached."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from pytest_dsocr.families.family import PREPROCESS, TOKENIZER
from pytest_dsocr.foundation.words import HASH_CHARACTERS, aligned, count, entry, listed
from pytest_dsocr.perf.candidate import SUBJECT, opened
from pytest_dsocr.perf.counts import Change, exact_changes, other_changes, text_change
from pytest_dsocr.perf.host import of_turns, steady
from pytest_dsocr.perf.identity import PageSetting, identity_of
from pytest_dsocr.perf.limits import ANY, LOOKS, Watcher, limits_of, looks_at, once_settled, order, settle
from pytest_dsocr.perf.rounds import Measured, Round, alike
from pytest_dsocr.perf.side import Side, ask_all, sides
from pytest_dsocr.perf.statistics import Judgement, Pace, Sides, judge
from pytest_dsocr.perf.trace import Difference, difference
from pytest_dsocr.perf.traced import Table
from pytest_dsocr.subjects.loading import SESSIONS, VENDOR

LABELS = ("A", "B")
HEAD = ("stage", "A ms", "B ms", "B / A", "interval", "allowed", "verdict")
LEFT = ("stage", "verdict")
ENDED = "interrupted"
RoundPair = tuple[Round, Round]


class Status(IntEnum):
    """The exit status of a comparison."""

    NOT_SLOWER = 0
    SLOWER = 1
    UNDECIDED = 2
    NOT_RUN = 3


@dataclass(frozen=True)
class Task:
    """What both sides are asked to do."""

    subject: str
    """Of the side that names none of its own."""
    setup: Mapping[str, str]
    """The fields of :class:`pytest_dsocr.subjects.protocol.Setup`."""
    checkpoint_sha256: str
    """Empty for one that only the subject can read."""
    page: Path
    reading: PageSetting
    """The page, and what is asked of it."""
    slower: Mapping[str, float] = field(default_factory=dict)
    """How much slower a quantity may be, where that is not the default."""
    stages: tuple[str, ...] = ()
    """The quantities to judge; all where none is named."""
    most_rounds: int = LOOKS[-1]
    """The most pairs of rounds to take."""
    seconds: float = math.inf
    """No pair of rounds is started after so many."""
    limit_s: float = 600.0
    """Seconds that one answer of a side may take."""
    traces: Path | None = None
    """The folder for a trace of each side; none is taken without it."""


@dataclass(frozen=True)
class Bench:
    """What came out."""

    a: Measured
    b: Measured
    judgements: tuple[Judgement, ...]
    apart: str = ""
    """How the sides' texts differ; nothing where they do not."""
    is_timed: bool = True
    """False where only what is counted is compared."""
    cut_short: str = ""
    """Why fewer rounds were taken than might have told more."""
    trace: Difference | None = None
    """What one traced page of each side shows, where it was asked for."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """The quantities of which a slow-down is accepted, each with its reason."""

    @property
    def changes(self) -> list[Change]:
        """The exact quantities that differ."""
        return exact_changes(self.a.exact, self.b.exact)

    @property
    def is_same_work(self) -> bool:
        """Whether both sides did the same work; otherwise times say nothing."""
        return not self.apart and not any(change.is_work for change in self.changes)

    @property
    def decision(self) -> tuple[Status, str]:
        """The exit status and why, in words: more of what is counted is worse, whether or not times could be judged."""
        if not self.is_same_work:
            return Status.UNDECIDED, "could not tell: the sides do different work, so that their times do not compare"
        slower, known = ([one for one in self._of(Pace.SLOWER) if (one in self.accepted) is so] for so in (False, True))
        slower += [f"{one.quantity} (counted)" for one in self.changes if one.is_worse]
        if slower:
            return Status.SLOWER, f"B is slower: {listed(slower)}"
        if open_ones := self._of(Pace.AMBIGUOUS, Pace.NOT_COMPARED):
            return Status.UNDECIDED, f"could not tell: {listed(open_ones)}{self.cut_short and f' ({self.cut_short})'}"
        if not self.is_timed:
            return Status.NOT_SLOWER, "B counts no more than A"
        if not self.judgements:
            whys = dict.fromkeys(why for side in (self.a, self.b) for one in side.rounds for why in one.spoilt)
            return Status.UNDECIDED, f"could not tell: no round was fit for use: {listed([*whys]) or 'none was taken'}"
        if known:
            return Status.NOT_SLOWER, f"B is slower as accepted: {listed(known)}"
        faster = self._of(Pace.FASTER)
        return Status.NOT_SLOWER, f"B is faster: {listed(faster)}" if faster else "B is the same"

    @property
    def status(self) -> Status:
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

    def _of(self, *paces: Pace) -> list[str]:
        return [one.quantity for one in self.judgements if one.pace in paces]


def compare(names: Sequence[str], task: Task, watch: Watcher, *, is_timed: bool = True) -> Bench:
    """Compare two named sides; without times, only what is counted, and nothing is judged.

    Raises:
        DsocrError: where one of the two cannot be run, or would not run what it is named for.
    """
    with ExitStack() as stack:
        candidates = [stack.enter_context(opened(name)) for name in names]
        both = stack.enter_context(sides(dict(zip(LABELS, candidates, strict=True)), task.limit_s))
        watch("loading", 0, task.most_rounds)
        loads = [_load(side, task, [one.process.pid for one in both]) for side in both]
        loaded = ask_all(both, "load", loads)
        watch("counting", 0, task.most_rounds)
        texts, exact = ask_all(both, "read"), [side.ask("exact") for side in both]  # a GPU's work is timed as well
        for side in both:
            watch(f"warming up {side.label}", 0, task.most_rounds)
            side.ask("warm_up")
            side.check_used()
        pairs, judgements, cut_short = settled(both, exact, task, watch) if is_timed else ([], [], "")
        trace = _traced(both, task, judgements, watch) if task.traces and not cut_short.startswith(ENDED) else None
    identities = [_identity(side, task, found) for side, found in zip(both, loaded, strict=True)]
    a, b = (Measured(identities[k], exact[k], tuple(pair[k] for pair in pairs)) for k in (0, 1))
    return Bench(a, b, tuple(judgements), text_change(*map(str.strip, texts)), is_timed, cut_short, trace)


def _traced(both: Sequence[Side], task: Task, judged: Sequence[Judgement], watch: Watcher) -> Difference:
    """Trace each side once, one after the other; both know both subjects' packages for code that is to blame."""
    specs = [_absolute(side.candidate.subject or task.subject, VENDOR) for side in both]
    own = [__package__ if one in SESSIONS else one for one in specs]
    packages = [one.partition(":")[0].partition(".")[0] for one in own if not one.startswith(VENDOR)]
    tables = []
    for side in both:
        watch(f"tracing {side.label}", 0, task.most_rounds)
        trees = [*map(str, side.candidate.path), *(one.removeprefix(VENDOR) for one in own if one.startswith(VENDOR))]
        file = f"{task.traces}/{side.label}.trace.json"
        tables.append(Table.from_json(side.ask("trace", file=file, trees=trees, packages=packages)))
    return difference(tables[0], tables[1], [one.quantity for one in judged if one.is_change])


class _TimeUpError(Exception):
    """No further round is to be taken."""


def settled(
    both: Sequence[Side], exact: Sequence[Mapping[str, int]], task: Task, watch: Watcher
) -> tuple[list[RoundPair], Sequence[Judgement], str]:
    """Take pairs of rounds until all is judged, or the bound is reached; return them, and the verdicts.

    The first pair is of all, for limits depend on the page; then what is settled, or not asked for, is left out.
    Where the time is up, or Ctrl-C is pressed, those that were taken are judged; the third value says so.
    """
    ends_s = time.monotonic() + task.seconds
    pairs = [_rounds(both, 0)]

    judged = once_settled(lambda look, looks: judge_pairs(pairs, exact, task.slower, look, looks, task.stages))

    def take(open_ones: Sequence[str]) -> RoundPair:
        if time.monotonic() > ends_s:
            raise _TimeUpError(f"the {task.seconds:g} s of --seconds were over after {count(len(pairs), 'pair')}")
        return _rounds(both, len(pairs), open_ones or task.stages)

    quantities = len(task.stages) or len(pairs[0][0].wall_ms)
    looks, [fewest, *_] = looks_at(quantities, task.most_rounds), looks_at(quantities)
    short = "" if task.most_rounds >= fewest else f"fewer than {fewest} pairs tell only what is twice as slow or fast"
    watch(short or "rounds", 1, looks[-1])
    try:
        return pairs, settle(pairs, take, _spoilt, judged, looks, watch), short
    except _TimeUpError as up:
        return pairs, judged(len(looks), len(looks)), str(up)
    except KeyboardInterrupt:
        for side in both:
            side.process.end()
        return pairs, judged(len(looks), len(looks)), f"{ENDED} after {count(len(pairs), 'pair')}"


def _rounds(both: Sequence[Side], number: int, only: Sequence[str] = ()) -> RoundPair:
    """Take one pair of rounds, the sides in the order of its number; return A's first."""
    both_of = {TOKENIZER: (PREPROCESS, TOKENIZER)}  # of which one side may have the first as part of the second
    asked = [name for one in only for name in both_of.get(one, (one,))]
    found = {k: Round.from_json(both[k].ask("round", only=asked)) for k in order(number)}
    return alike(found[0], found[1]), alike(found[1], found[0])


def judge_pairs(
    pairs: Sequence[RoundPair],
    exact: Sequence[Mapping[str, int]],
    slower: Mapping[str, float],
    look: int,
    looks: int,
    stages: Sequence[str] = (),
) -> list[Judgement]:
    """Judge pairs of rounds; what only one side has the time of is not compared. Nothing where all are spoilt."""
    times = times_of(pairs, exact)
    if not times:
        return []
    named = dict.fromkeys(stages or (*(name for pair in pairs for one in pair for name in one.wall_ms), *slower))
    why = "not timed in every round of both sides"
    lost = [Judgement.not_compared(name, why) for name in named if name not in times and name != ANY]
    asked = {name: times[name] for name in named if name in times}
    limits = limits_of(times, slower)
    return [*judge(asked, limits, paired=True, look=look, looks=looks), *lost]


def times_of(pairs: Sequence[RoundPair], exact: Sequence[Mapping[str, int]]) -> dict[str, Sides]:
    """Return both sides' milliseconds in the good and steady pairs that took a quantity, corrected for the host.

    Of a quantity that one side alone has the time of in any pair there is nothing.
    """
    good = [pair for pair in pairs if not _spoilt(pair)]
    found: dict[str, Sides] = {}
    for name in dict.fromkeys(name for pair in good for one in pair for name in one.wall_ms):
        timed = [pair for pair in good if any(name in one.wall_ms for one in pair)]
        if all(name in one.wall_ms for pair in timed for one in pair):
            a, b = zip(*steady(timed, name), strict=True)
            found[name] = of_turns(a, exact[0], name), of_turns(b, exact[1], name)
    return found


def _spoilt(pair: RoundPair) -> list[str]:
    return [why for one in pair for why in one.spoilt]


def _load(side: Side, task: Task, friends: Sequence[int]) -> dict[str, Any]:
    return {
        "spec": _absolute(side.candidate.subject or task.subject, VENDOR),
        "setup": {**task.setup, "checkpoint": _absolute(task.setup["checkpoint"])},
        "reading": {**asdict(task.reading), "path": str(task.page)},
        "friends": friends,
    }


def _identity(side: Side, task: Task, found: Mapping[str, Any]) -> dict[str, Any]:
    weights = {"checkpoint": task.setup["checkpoint"], "checkpoint_sha256": task.checkpoint_sha256}
    how = {"dtype": task.setup["dtype"], "attention": task.setup["attention"], "threads": found["threads"]}
    code = {"name": side.candidate.name, "commit": side.candidate.commit}
    where = {"machine": found["machine"], "versions": found["versions"]}
    return identity_of(side.candidate.subject or task.subject, weights | how, task.reading, **code, **where)


def _absolute(name: str, prefix: str = "") -> str:
    """Make a folder's name absolute, for a process that runs elsewhere."""
    folder = Path(name.removeprefix(prefix))
    return f"{prefix}{folder.absolute()}" if name.startswith(prefix) and folder.is_dir() else name


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
    """Yield what differs beside the times, or that nothing does."""
    if bench.cut_short:
        yield from entry("cut short", bench.cut_short)
    if bench.apart:
        yield from entry("apart", bench.apart)
    else:
        counts = "" if bench.changes else f", and all {len(bench.a.exact)} quantities that are counted"
        yield from entry("equal", f"the text that is read{counts}")
    paces = {one.quantity: one.pace for one in bench.judgements}
    for name, why in bench.accepted.items():
        mended = "; no longer slower: remove its line" if paces.get(name) in (Pace.SAME, Pace.FASTER) else ""
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
    if one.pace is Pace.NOT_COMPARED:
        return (one.quantity, "", "", "", "", "", f"{one.pace}: {one.reason}")
    more = f"; {one.reason or f'{one.wanted} pairs might tell'}" if one.pace is Pace.AMBIGUOUS else ""
    return (
        one.quantity,
        f"{one.before_ms:.4g}",
        f"{one.after_ms:.4g}",
        f"{one.ratio:.3f}",
        f"{one.low:.3f} to {one.high:.3f}",
        f"{1 + one.limit:.3f}",
        f"{one.pace}{more}",
    )
