"""What verdicts are worth on a machine: one side measured against itself, as it is and with slowdowns of known size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from msgspec import Meta

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import seal, unseal, write_whole
from pytest_dsocr.foundation.reading import Finite, Format, Identity
from pytest_dsocr.foundation.words import aligned, count, entry, fit
from pytest_dsocr.perf.bench import LABELS, RoundPair, Task, Watcher, pair_of, take, times_of
from pytest_dsocr.perf.candidate import Candidate
from pytest_dsocr.perf.identity import machine_name, title_of
from pytest_dsocr.perf.limits import limits_of, look_at, looks_at, percent
from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.perf.statistics import Judgement, Pace, Sides, unusable

FILE_NAME = "calibration.json"
HOW = "dsocr bench --calibrate A"
SLOWDOWNS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15, 0.20, 0.30)
OFTEN = 0.95
"""The share of windows in which a slowdown is to be found."""
ALARMS = frozenset({Pace.SLOWER, Pace.FASTER})
HEAD = ("stage", "false alarms", "ambiguous", "spread", "found from", "allowed")

Window = Mapping[str, Sides]
"""Pairs of rounds of the same thing, by quantity, as many as make a table."""


@dataclass(frozen=True)
class Calibration:
    """What one machine's tables of the same thing against itself showed."""

    windows: Annotated[int, Meta(ge=1)]
    pairs: int
    """Of rounds, that the windows were drawn from; windows overlap."""
    false_alarms: int
    """Tables in which anything was called slower or faster."""
    alarms: Mapping[str, int]
    """By quantity: in how many windows it was called slower or faster."""
    ambiguous: Mapping[str, int]
    """By quantity: in how many windows the times did not tell."""
    spread: Mapping[str, Finite]
    """By quantity: how much the two processes of a pair differ, at the median over pairs; 0.01 is 1 %."""
    smallest_found: Mapping[str, Finite | None]
    """By quantity: the smallest slowdown that is found in 95 of 100 windows, of either side; none where even the
    largest is not."""
    limits: Mapping[str, Finite]
    """How much slower each quantity was allowed to be."""
    made: str = ""
    """The day, as ``2026-11-22``."""
    of: Identity = field(default_factory=dict)
    """The identity of what was measured; see :class:`pytest_dsocr.perf.rounds.Measured`."""

    @property
    def false_alarm_interval(self) -> tuple[float, float]:
        """Where the share of tables with a false alarm lies, 95 times in 100 (Wilson)."""
        from scipy import stats

        found = stats.binomtest(self.false_alarms, self.windows).proportion_ci(0.95, method="wilson")
        return float(found.low), float(found.high)

    def to_bytes(self) -> bytes:
        """Return it as sealed JSON."""
        return seal(asdict(self))

    def found_from(self, quantity: str) -> str:
        """Return the smallest slowdown of a quantity that is found."""
        found = self.smallest_found[quantity]
        return "never" if found is None else f"+{percent(found)}"


CALIBRATIONS = Format(Calibration, f"make it anew: {HOW}", parse=unseal)


def measure(
    candidate: Candidate, task: Task, judgements: int, pairs: int, processes: int, watch: Watcher
) -> tuple[Calibration, list[tuple[Measured, Measured]]]:
    """Judge a candidate against itself so many times; return the calibration, and what each process pair measured.

    Args:
        candidate: both sides of each pair.
        task: what it does.
        judgements: tables to judge, spread evenly over all pairs of rounds; neighbours share most of theirs.
        pairs: of rounds, in all.
        processes: pairs of processes, one after the other, that take them.
        watch: called with how far it is.

    Raises:
        DsocrError: where it cannot be run, or too few rounds were fit for use.
    """
    parts: list[Window] = []
    measured: list[tuple[Measured, Measured]] = []
    for number in range(processes):
        start, end = (pairs * k // processes for k in (number, number + 1))
        watch_all = _from(start, pairs, watch)
        with pair_of([candidate] * len(LABELS), task, watch_all) as pair:
            taken: list[RoundPair] = []
            take(pair, taken, end - start, partial(watch_all, "rounds in turn"))
        parts += [times] if (times := times_of(taken, pair.exact)) else []
        measured.append(pair.measured(taken))
    last = measured[-1][0]
    if not parts or not (whole := joined(parts)):
        raise DsocrError(f"no round of {pairs} pairs is fit for use ({last.why_spoilt}); let the machine be idle")
    windows = windows_of(whole, judgements, task.most_rounds)
    looks = looks_at(len(whole), task.most_rounds)
    found = calibrate(windows, limits_of(whole, task.slower), looks, parts)
    return replace(found, made=datetime.now(UTC).date().isoformat(), of=last.identity), measured


def _from(start: int, pairs: int, watch: Watcher) -> Callable[..., None]:
    """Return a watcher of one process that reports to ``watch`` the pairs of all."""
    return lambda what, done=0, *_: watch(what, start + done, pairs)


def joined(parts: Sequence[Window]) -> Window:
    """Concatenate the pairs of several processes."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: tuple([time for part in parts for time in part[name][side]] for side in (0, 1)) for name in names}  # type: ignore[misc]


def windows_of(whole: Window, number: int, length: int) -> list[Window]:
    """Return so many windows of consecutive pairs, evenly spread from the first to the last."""
    room = max(min(len(before) for before, _ in whole.values()) - length, 0)
    starts = [round(room * k / max(number - 1, 1)) for k in range(number)]
    return [
        {name: (a[start : start + length], b[start : start + length]) for name, (a, b) in whole.items()}
        for start in starts
    ]


def calibrate(
    windows: Sequence[Window],
    limits: Mapping[str, float],
    looks: Sequence[int] = (),
    processes: Sequence[Window] = (),
) -> Calibration:
    """Judge each window as it is, and with slowdowns multiplied into one side of one quantity after the other.

    Args:
        windows: tables of pairs, each as long as a judged one may get. Where one of two processes is a little slower by
            itself, a slowdown of that one is found sooner than of the other; so each side has its turn.
        limits: how much slower each quantity may be.
        looks: after how many pairs they are judged; as always where it is left out.
        processes: the pairs that each process took; the windows, where it is left out.

    Raises:
        ValueError: where there is no window.
    """
    if not windows:
        raise ValueError("a calibration needs a window of rounds")
    quantities = tuple(windows[0])
    looks = looks or looks_at(len(quantities))
    processes = processes or windows
    tables = [look_at(window, limits, looks) for window in windows]
    return Calibration(
        windows=len(windows),
        pairs=sum(len(part[quantities[0]][0]) for part in processes),
        false_alarms=sum(any(one.pace in ALARMS for one in table) for table in tables),
        alarms={quantity: _count(tables, quantity, ALARMS) for quantity in quantities},
        ambiguous={quantity: _count(tables, quantity, {Pace.AMBIGUOUS}) for quantity in quantities},
        spread={quantity: spread_of([part[quantity] for part in processes]) for quantity in quantities},
        smallest_found={quantity: _smallest_found(windows, quantity, limits, looks) for quantity in quantities},
        limits=dict(limits),
    )


def spread_of(parts: Sequence[Sides]) -> float:
    """Return how much the two processes of a pair differ in a quantity, at the median over pairs: 0.01 is 1 %."""
    usable = [part for part in parts if not unusable(*part, True)]
    apart = [abs(math.log(median(after) / median(before))) for before, after in usable]
    return math.expm1(median(apart)) if apart else 0.0


def _count(tables: Sequence[Sequence[Judgement]], quantity: str, paces: Set[Pace]) -> int:
    return sum(one.quantity == quantity and one.pace in paces for table in tables for one in table)


def _smallest_found(
    windows: Sequence[Window], quantity: str, limits: Mapping[str, float], looks: Sequence[int]
) -> float | None:
    turned = ({name: (after, before) for name, (before, after) in window.items()} for window in windows)
    either = [*chain(windows, turned)]
    most_missed = len(either) - math.ceil(OFTEN * len(either))
    for slowdown in SLOWDOWNS:
        missed = (None for one in either if not _found(one, quantity, slowdown, limits, looks))
        if len([*islice(missed, most_missed + 1)]) <= most_missed:
            return slowdown
    return None


def _found(window: Window, quantity: str, slowdown: float, limits: Mapping[str, float], looks: Sequence[int]) -> bool:
    before, after = window[quantity]
    slowed = {**window, quantity: (before, [time * (1 + slowdown) for time in after])}
    return _count([look_at(slowed, limits, looks)], quantity, {Pace.SLOWER}) == 1


def write(calibration: Calibration, baselines: Path) -> Path:
    """Write it into its machine's folder, in place of the one that is there; return the file."""
    path = baselines / machine_name(calibration.of["machine"]) / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, calibration.to_bytes())
    return path


def find(machine: Mapping[str, Any], folders: Sequence[Path]) -> Path | None:
    """Return the calibration file of a machine, where there is one."""
    paths = (folder / machine_name(machine) / FILE_NAME for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def quoted(machine: Mapping[str, Any], folders: Sequence[Path], quantities: Sequence[str]) -> Iterator[str]:
    """Yield what the calibration of a machine says of verdicts on these quantities, or why there is none."""
    path = find(machine, folders)
    try:
        one = CALIBRATIONS.read(path) if path else None
    except DsocrError as error:
        yield from entry("calibration", str(error))
        return
    if one is None:
        yield from entry("calibration", f"none of this machine ({machine_name(machine)}); to make one: {HOW}")
        return
    found = [f"{name} {one.found_from(name)}" for name in quantities if name in one.smallest_found]
    yield from entry(
        "calibration",
        f"{one.false_alarms} of {count(one.windows, 'table')} of this machine against itself had a false alarm; found "
        f"{100 * OFTEN:.0f} times in 100: {', '.join(found) or 'nothing that is timed here'}",
    )
    yield from entry("", f"made on {one.made} with {title_of(one.of)}")


def lines_of(one: Calibration) -> Iterator[str]:
    """Yield a calibration for a terminal."""
    yield fit(title_of(one.of))
    yield ""
    rows = [
        (
            name,
            str(one.alarms[name]),
            str(one.ambiguous[name]),
            percent(one.spread[name]),
            one.found_from(name),
            f"+{percent(one.limits[name])}",
        )
        for name in one.spread
    ]
    yield from aligned([HEAD, *rows], HEAD[:1])
    yield ""
    low, high = one.false_alarm_interval
    yield from entry(
        "false alarms",
        f"in {one.false_alarms} of {count(one.windows, 'table')}, which is {percent(low)} to {percent(high)} of them; "
        f"they were drawn from {count(one.pairs, 'pair')} of rounds, and overlap",
    )
    yield from entry("found from", f"the smallest slowdown that is found {100 * OFTEN:.0f} times in 100")
