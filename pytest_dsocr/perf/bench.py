"""Two sides measured in turn, in processes of their own, until each quantity is judged or the bound is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import listed
from pytest_dsocr.perf.candidate import Candidate, opened
from pytest_dsocr.perf.changes import Change, exact_changes, text_change
from pytest_dsocr.perf.host import of_turns
from pytest_dsocr.perf.identity import Identity, Reading, Setting
from pytest_dsocr.perf.judgement import Judgement, Pace
from pytest_dsocr.perf.limits import ANY, limits_of
from pytest_dsocr.perf.rounds import Measured, Round
from pytest_dsocr.perf.schedule import LOOKS, MOST_TAKEN, is_over, looks_at, order
from pytest_dsocr.perf.side import Side, sides
from pytest_dsocr.perf.statistics import Sides, judge
from pytest_dsocr.subjects.loading import VENDOR

LABELS = ("A", "B")
RoundPair = tuple[Round, Round]
Watcher = Callable[[str, int, int], None]
"""Told what is being done, how many pairs of rounds are done, and how many there will be at most."""


class Status(IntEnum):
    """The exit status of a comparison."""

    NOT_SLOWER = 0
    SLOWER = 1
    UNTOLD = 2
    NOT_RUN = 3


@dataclass(frozen=True)
class Task:
    """What both sides do."""

    subject: str
    """Of the side that names none of its own."""
    setup: Mapping[str, str]
    """The fields of :class:`pytest_dsocr.subjects.protocol.Setup`."""
    checkpoint_sha256: str
    """Empty for one that only the subject can read."""
    page: Path
    reading: Reading
    """The page, and what is asked of it."""
    slower: Mapping[str, float] = field(default_factory=dict)
    """How much slower a quantity may be, where that is not the default."""
    most_rounds: int = LOOKS[-1]
    """RoundPair of rounds that are taken at most."""
    planted: Mapping[str, float] = field(default_factory=dict)
    """Share by which stages of B are really made slower."""
    limit_s: float = 600.0
    """Seconds that one answer of a side may take."""


@dataclass(frozen=True)
class Bench:
    """What came out."""

    a: Measured
    b: Measured
    judgements: tuple[Judgement, ...]
    apart: str = ""
    """How the sides' texts differ; nothing where they do not."""

    @property
    def changes(self) -> list[Change]:
        """The exact quantities that differ."""
        return exact_changes(self.a.exact, self.b.exact)

    @property
    def is_same_work(self) -> bool:
        """Whether both sides did the same work, without which times say nothing."""
        return not self.apart and not any(change.is_work for change in self.changes)

    @property
    def decision(self) -> tuple[Status, str]:
        """The exit status and why, in words: more of what is counted is worse, whether or not times could be judged."""
        if not self.is_same_work:
            return Status.UNTOLD, "could not tell: the sides do different work, so that their times do not compare"
        slower = self._of(Pace.SLOWER) + [f"{one.quantity} (counted)" for one in self.changes if one.is_worse]
        if slower:
            return Status.SLOWER, f"B is slower: {listed(slower)}"
        if open_ones := self._of(Pace.AMBIGUOUS, Pace.NOT_COMPARED):
            return Status.UNTOLD, f"could not tell: {listed(open_ones)}"
        if not self.judgements:
            return Status.UNTOLD, "could not tell: no round was fit for use"
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
        """Give it as JSON values."""
        return {
            "verdict": self.verdict,
            "status": int(self.status),
            "apart": self.apart,
            "judgements": [one.to_json() for one in self.judgements],
            "changes": [change.told for change in self.changes],
            "a": self.a.to_json(),
            "b": self.b.to_json(),
        }

    def _of(self, *paces: Pace) -> list[str]:
        return [one.quantity for one in self.judgements if one.pace in paces]


@dataclass(frozen=True)
class Pair:
    """Both sides, loaded and warm, and what is known of them before any round that counts."""

    sides: Sequence[Side]
    identities: Sequence[dict[str, Any]]
    exact: Sequence[dict[str, int]]
    texts: Sequence[str]

    def rounds(self, number: int) -> tuple[Round, Round]:
        """Take the pair of rounds of a number, one side after the other; give A's first."""
        found = {k: Round.from_json(self.sides[k].ask("round")) for k in order(number)}
        return found[0], found[1]

    def measured(self, pairs: Sequence[RoundPair]) -> tuple[Measured, Measured]:
        """Give both sides with their rounds."""
        a, b = (
            Measured(self.identities[k], self.exact[k], tuple(pair[k] for pair in pairs)) for k in range(len(LABELS))
        )
        return a, b


def compare(names: Sequence[str], task: Task, watch: Watcher) -> Bench:
    """Compare what two names stand for.

    Raises:
        DsocrError: where one of them cannot be run.
    """
    with ExitStack() as stack:
        candidates = [stack.enter_context(opened(name)) for name in names]
        with pair_of(candidates, task, watch) as pair:
            pairs, judgements = settled(pair, task, watch)
            a, b = pair.measured(pairs)
            return Bench(a, b, tuple(judgements), text_change(*pair.texts))


def counted(names: Sequence[str], task: Task, watch: Watcher) -> Bench:
    """Compare what is counted alone, without a clock: there is no judgement on times.

    Raises:
        DsocrError: where one of the two cannot be run.
    """
    with ExitStack() as stack:
        candidates = [stack.enter_context(opened(name)) for name in names]
        with pair_of(candidates, task, watch) as pair:
            return Bench(*pair.measured(()), (), text_change(*pair.texts))


@contextmanager
def pair_of(candidates: Sequence[Candidate], task: Task, watch: Watcher) -> Iterator[Pair]:
    """Start both sides, load and warm them up, and end them.

    Raises:
        DsocrError: where a side cannot do that, or would not run what it is named for.
    """
    with sides(dict(zip(LABELS, candidates, strict=True)), task.limit_s) as both:
        friends = [side.pid for side in both]
        loads = [_load(side, task, friends) for side in both]
        watch("loading", 0, task.most_rounds)
        identities = [
            _identity(side, task, found) for side, found in zip(both, _at_once(both, "load", loads), strict=True)
        ]
        watch("counting", 0, task.most_rounds)
        texts, exact = _at_once(both, "read"), _at_once(both, "exact")
        for side in both:
            watch(f"warming up {side.label}", 0, task.most_rounds)
            side.ask("warm_up")
            side.check_used()
        yield Pair(both, identities, exact, texts)


def settled(pair: Pair, task: Task, watch: Watcher) -> tuple[list[RoundPair], list[Judgement]]:
    """Take pairs of rounds until all is judged, or the bound is reached; give them, and the verdicts."""
    pairs = [pair.rounds(0)]
    if unknown := task.planted.keys() - {*pairs[0][1].wall_ms, "vision"}:
        raise DsocrError(
            f"nothing can be planted in {listed(sorted(unknown))}; there are {', '.join(pairs[0][1].wall_ms)}"
        )
    looks = looks_at(len(pairs[0][0].wall_ms), task.most_rounds)
    judgements: list[Judgement] = []
    for look, upto in enumerate(looks, 1):
        take(pair, pairs, upto, lambda good: watch("rounds in turn", good, looks[-1]))
        judgements = judged(pairs, pair.exact, task, look, len(looks))
        if is_over(judgements):
            break
    return pairs, judgements


def take(pair: Pair, pairs: list[RoundPair], upto: int, told: Callable[[int], None]) -> None:
    """Take pairs of rounds until so many are good, or twice as many are taken."""
    while (good := len(_good(pairs))) < upto and len(pairs) < MOST_TAKEN * upto:
        told(good)
        pairs.append(pair.rounds(len(pairs)))


def judged(
    pairs: Sequence[RoundPair], exact: Sequence[Mapping[str, int]], task: Task, look: int, looks: int
) -> list[Judgement]:
    """Judge pairs of rounds; what only one side has the time of is not compared. Nothing where all are spoilt."""
    times = times_of(pairs, exact)
    if not times:
        return []
    named = dict.fromkeys((*(name for pair in pairs for one in pair for name in one.wall_ms), *task.slower))
    lost = [_not_compared(name) for name in named if name not in times and name != ANY]
    return [*judge(times, limits_of(times, task.slower), paired=True, look=look, looks=looks), *lost]


def times_of(pairs: Sequence[RoundPair], exact: Sequence[Mapping[str, int]]) -> dict[str, Sides]:
    """Give the milliseconds of both sides in the good pairs, of each quantity that all of them have, at one pace."""
    good = _good(pairs)
    names = good[0][0].wall_ms if good else {}
    common = [name for name in names if all(name in one.wall_ms for pair in good for one in pair)]
    a, b = zip(*good, strict=True) if good else ((), ())
    return {name: (of_turns(a, exact[0], name), of_turns(b, exact[1], name)) for name in common}


def _good(pairs: Sequence[RoundPair]) -> list[RoundPair]:
    return [pair for pair in pairs if not any(one.spoilt for one in pair)]


def _at_once(both: Sequence[Side], what: str, how: Sequence[Mapping[str, Any]] = ({}, {})) -> list[Any]:
    """Ask both sides for what takes long and is not timed."""
    for side, one in zip(both, how, strict=True):
        side.begin(what, **one)
    return [side.answer(what) for side in both]


def _load(side: Side, task: Task, friends: Sequence[int]) -> dict[str, Any]:
    return {
        "spec": _absolute(side.candidate.subject or task.subject, VENDOR),
        "setup": {**task.setup, "checkpoint": _absolute(task.setup["checkpoint"])},
        "reading": {**asdict(task.reading), "path": str(task.page)},
        "planted": _planted(side, task),
        "friends": friends,
    }


def _identity(side: Side, task: Task, found: Mapping[str, Any]) -> dict[str, Any]:
    how = {name: task.setup[name] for name in ("checkpoint", "dtype", "attention")}
    identity = Identity(
        name=side.candidate.name,
        commit=side.candidate.commit,
        machine=found["machine"],
        versions=found["versions"],
        subject=side.candidate.subject or task.subject,
        setup=Setting(**how, checkpoint_sha256=task.checkpoint_sha256, threads=found["threads"]),
        page=task.reading,
    )
    return {**identity.to_json(), "planted": _planted(side, task)}


def _planted(side: Side, task: Task) -> dict[str, float]:
    return dict(task.planted) if side.label == LABELS[-1] else {}


def _absolute(name: str, prefix: str = "") -> str:
    """Give a name that holds a folder of this process's as the side's process finds it."""
    folder = Path(name.removeprefix(prefix))
    return f"{prefix}{folder.absolute()}" if name.startswith(prefix) and folder.is_dir() else name


def _not_compared(quantity: str) -> Judgement:
    nan = float("nan")
    why = "not timed in every round of both sides"
    return Judgement(quantity, Pace.NOT_COMPARED, nan, nan, nan, nan, nan, nan, 0, 0, why)
