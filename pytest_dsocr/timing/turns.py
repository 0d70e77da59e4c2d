"""Alternating rounds of two processes; new processes confirm small changes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.subjects.calls import LOAD
from pytest_dsocr.subjects.loading import VENDOR
from pytest_dsocr.timing.budget import LOADING, TimeBudget
from pytest_dsocr.timing.candidate import Candidate
from pytest_dsocr.timing.identity import PageSetting
from pytest_dsocr.timing.limits import LOOKS, Watcher
from pytest_dsocr.timing.pairs import ENDED, PairedRounds, groups_of
from pytest_dsocr.timing.side import TimedSide, ask_all, sides
from pytest_dsocr.timing.statistics import NO_SLOWER, Judgement, TimingVerdict
from pytest_dsocr.timing.work import Work

LABELS = ("A", "B")
ROUNDS = "rounds"
PROCESSES_APART = math.log(1.15)
"""Difference up to which two processes of the same code may run throughout on a CPU, as a logarithm; 1.10 was seen."""
AGAIN = 2
"""Number of new pairs of processes that must confirm a change smaller than that."""


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
    """Seconds for all but loading; the parts that follow the rounds start only if they are likely to end in time."""
    limit_s: float = 600.0
    """Seconds allowed for one answer of a side."""
    start_limit_s: float = START_LIMIT_S
    """Seconds that a side may take to start and load."""
    traces: Path | None = None
    """The folder for a trace of each side; none is taken without it."""


@contextmanager
def started(
    candidates: Sequence[Candidate], task: Task, watch: Watcher, budget: TimeBudget
) -> Iterator[tuple[Sequence[TimedSide], list[Any]]]:
    """Start a process for each side and load its subject; yield both, and where each runs."""
    with ExitStack() as stack:
        with budget.part(LOADING):
            named = dict(zip(LABELS, candidates, strict=True))
            both = stack.enter_context(sides(named, task.limit_s, task.start_limit_s))
            watch("loading", 0, task.most_rounds)
            found = ask_all(both, LOAD, [_load(side, task, [one.process.pid for one in both]) for side in both])
        yield both, found


def asked_again(
    candidates: Sequence[Candidate],
    judged: Sequence[Judgement],
    task: Task,
    watch: Watcher,
    budget: TimeBudget,
    work: Work,
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
        again, cut_short = _again(candidates, replace(task, stages=names), watch, budget, work)
        seen = {one.quantity: one for one in again}
        found |= {name: _agreed(found[name], seen.get(name)) for name in names}
        if cut_short.startswith(ENDED):
            break
    return [*found.values()]


def _again(
    candidates: Sequence[Candidate], task: Task, watch: Watcher, budget: TimeBudget, work: Work
) -> tuple[Sequence[Judgement], str]:
    """Return the verdicts of new processes, and why they took too few rounds; none if no time is left."""
    if budget.left_s <= 0:
        return (), ""
    with started(candidates, task, watch, budget) as (both, _):
        work.drive(both)
        pairs = first_pairs(both, task, watch, budget, work)
        with budget.part(ROUNDS):
            cut_short = pairs.settle()
    return pairs.judgements, cut_short


def _agreed(one: Judgement, again: Judgement | None) -> Judgement:
    """Return a change unchanged if new processes confirm it; otherwise weaken it to what both results support."""
    if again and again.pace is one.pace:
        return one
    pace = TimingVerdict.NOT_SLOWER if again and {one.pace, again.pace} <= {*NO_SLOWER} else TimingVerdict.AMBIGUOUS
    ratio = f"{again.ratio:.3f} {again.pace}" if again else "not timed"
    return replace(one, pace=pace, reason=f"{one.pace}, but {ratio} in new processes")


def first_pairs(both: Sequence[TimedSide], task: Task, watch: Watcher, budget: TimeBudget, work: Work) -> PairedRounds:
    """Warm both up and take the first pairs; :meth:`.PairedRounds.settle` takes the others."""
    with budget.part("warm-up"):
        for side in both:
            watch(f"warming up {side.label}", 0, task.most_rounds)
            side.ask("warm_up")
            side.check_used()
    with budget.part(ROUNDS):
        return PairedRounds(both, groups_of(work.tokens), budget, watch, task.slower, task.stages, task.most_rounds)


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
