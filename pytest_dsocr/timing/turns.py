"""Interleaved rounds of two processes until each quantity is judged; new processes confirm small changes."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.base.words import count
from pytest_dsocr.models.spec import PREPROCESS, TOKENIZER
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.subjects.calls import LOAD
from pytest_dsocr.subjects.loading import VENDOR
from pytest_dsocr.timing.candidate import Candidate
from pytest_dsocr.timing.host import of_turns, steady
from pytest_dsocr.timing.identity import PageSetting
from pytest_dsocr.timing.limits import ANY, LOOKS, Watcher, limits_of, looks_at, once_settled, settle
from pytest_dsocr.timing.rounds import Round, alike
from pytest_dsocr.timing.side import TimedSide, ask_all, sides
from pytest_dsocr.timing.statistics import NO_SLOWER, Judgement, Samples, TimingVerdict, judge

LABELS = ("A", "B")
ENDED = "interrupted"
PROCESSES_APART = math.log(1.15)
"""Difference up to which two processes of the same code may run throughout on a CPU, as a logarithm; 1.10 was seen."""
AGAIN = 2
"""Number of new pairs of processes that must confirm a change smaller than that."""
RoundPair = tuple[Round, Round]


@dataclass(frozen=True)
class Task:
    """Task of both sides."""

    subject: str
    """Subject of a side that names none of its own."""
    setup: Mapping[str, str]
    """The fields of :class:`pytest_dsocr.subjects.protocol.Setup`."""
    checkpoint_sha256: str
    """SHA-256 of the checkpoint; empty if only the subject can read it."""
    page: Path
    reading: PageSetting
    """Page, prompt, preset and limit of tokens."""
    slower: Mapping[str, float] = field(default_factory=dict)
    """Allowed slow-down by quantity, where it is not the default."""
    stages: tuple[str, ...] = ()
    """The quantities to judge; all if none is named."""
    most_rounds: int = LOOKS[-1]
    """The most pairs of rounds to take."""
    seconds: float = math.inf
    """Time after which no pair of rounds is started."""
    limit_s: float = 600.0
    """Seconds allowed for one answer of a side."""
    start_limit_s: float = START_LIMIT_S
    """Seconds that a side may take to start and load."""
    traces: Path | None = None
    """The folder for a trace of each side; none is taken without it."""


@contextmanager
def started(
    candidates: Sequence[Candidate], task: Task, watch: Watcher
) -> Iterator[tuple[Sequence[TimedSide], list[Any]]]:
    """Start a process for each side and load its subject; yield both, and where each runs."""
    with sides(dict(zip(LABELS, candidates, strict=True)), task.limit_s, task.start_limit_s) as both:
        watch("loading", 0, task.most_rounds)
        yield both, ask_all(both, LOAD, [_load(side, task, [one.process.pid for one in both]) for side in both])


def asked_again(
    candidates: Sequence[Candidate],
    exact: Sequence[Mapping[str, int]],
    judged: Sequence[Judgement],
    task: Task,
    watch: Watcher,
    ends_s: float,
) -> list[Judgement]:
    """Repeat in new processes each change that may come from the processes, not from their code.

    A change that not all of them show is AMBIGUOUS, or NOT-SLOWER if each passes. The place of a process's memory makes
    all its work slower or faster.
    """
    found = {one.quantity: one for one in judged}
    for _ in range(AGAIN):
        names = tuple(
            one.quantity for one in found.values() if one.is_change and abs(math.log(one.ratio)) < PROCESSES_APART
        )
        if not names:
            break
        with started(candidates, task, watch) as (both, _):
            _, again, cut_short = timed(both, exact, replace(task, stages=names), watch, ends_s)
        seen = {one.quantity: one for one in again}
        found |= {name: _agreed(found[name], seen.get(name)) for name in names}
        if cut_short.startswith(ENDED):
            break
    return [*found.values()]


def _agreed(one: Judgement, again: Judgement | None) -> Judgement:
    """Return a change unchanged if new processes confirm it; otherwise weaken it to what both results support."""
    if again and again.pace is one.pace:
        return one
    pace = TimingVerdict.NOT_SLOWER if again and {one.pace, again.pace} <= {*NO_SLOWER} else TimingVerdict.AMBIGUOUS
    ratio = f"{again.ratio:.3f} {again.pace}" if again else "not timed"
    return replace(one, pace=pace, reason=f"{one.pace}, but {ratio} in new processes")


class _TimeUpError(Exception):
    """No further round is to be taken."""


def timed(
    both: Sequence[TimedSide], exact: Sequence[Mapping[str, int]], task: Task, watch: Watcher, ends_s: float
) -> tuple[list[RoundPair], Sequence[Judgement], str]:
    """Warm both up, and take pairs of rounds until all is judged, or the limit is reached; return both results.

    The first pair measures all, since limits depend on the page. Later pairs leave out what is settled or not
    requested. If the time is up, or Ctrl-C is pressed, the pairs so far are judged; the third value states this.
    """
    for side in both:
        watch(f"warming up {side.label}", 0, task.most_rounds)
        side.ask("warm_up")
        side.check_used()
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


def _rounds(both: Sequence[TimedSide], number: int, only: Sequence[str] = ()) -> RoundPair:
    """Take one pair of rounds; return A's first, whichever side reads first.

    Pairs alternate (ABBA). Over two of them, a machine that gets steadily slower favours no side.
    """
    both_of = {TOKENIZER: (PREPROCESS, TOKENIZER)}  # one side may have the first as part of the second
    asked = [name for one in only for name in both_of.get(one, (one,))]
    found = {k: Round.from_json(both[k].ask("round", only=asked)) for k in ((1, 0) if number % 2 else (0, 1))}
    return alike(found[0], found[1]), alike(found[1], found[0])


def judge_pairs(
    pairs: Sequence[RoundPair],
    exact: Sequence[Mapping[str, int]],
    slower: Mapping[str, float],
    look: int,
    looks: int,
    stages: Sequence[str] = (),
) -> list[Judgement]:
    """Judge pairs of rounds; a quantity that one side lacks is not compared. Return nothing if all are spoilt."""
    times = times_of(pairs, exact)
    if not times:
        return []
    named = dict.fromkeys(stages or (*(name for pair in pairs for one in pair for name in one.wall_ms), *slower))
    why = "not timed in every round of both sides"
    lost = [Judgement.not_compared(name, why) for name in named if name not in times and name != ANY]
    asked = {name: times[name] for name in named if name in times}
    limits = limits_of(times, slower)
    return [*judge(asked, limits, paired=True, look=look, looks=looks), *lost]


def times_of(pairs: Sequence[RoundPair], exact: Sequence[Mapping[str, int]]) -> dict[str, Samples]:
    """Return both sides' milliseconds in the good and steady pairs that took a quantity, corrected for the host.

    A quantity that only one side has the time of in a pair is left out.
    """
    good = [pair for pair in pairs if not _spoilt(pair)]
    found: dict[str, Samples] = {}
    for name in dict.fromkeys(name for pair in good for one in pair for name in one.wall_ms):
        taken = [pair for pair in good if any(name in one.wall_ms for one in pair)]
        if all(name in one.wall_ms for pair in taken for one in pair):
            a, b = zip(*steady(taken, name), strict=True)
            found[name] = of_turns(a, exact[0], name), of_turns(b, exact[1], name)
    return found


def _spoilt(pair: RoundPair) -> list[str]:
    return [why for one in pair for why in one.spoilt]


def _load(side: TimedSide, task: Task, friends: Sequence[int]) -> dict[str, Any]:
    return {
        "spec": absolute(side.candidate.subject or task.subject, VENDOR),
        "setup": {**task.setup, "checkpoint": absolute(task.setup["checkpoint"])},
        "reading": {**asdict(task.reading), "path": str(task.page)},
        "friends": friends,
    }


def absolute(name: str, prefix: str = "") -> str:
    """Make a folder's name absolute, for a process that runs elsewhere."""
    folder = Path(name.removeprefix(prefix))
    return f"{prefix}{folder.absolute()}" if name.startswith(prefix) and folder.is_dir() else name
