"""One side measured against itself, again and again in new processes: what the verdicts of a machine are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.words import aligned, count, entry, fit
from pytest_dsocr.perf.baseline import machine_name
from pytest_dsocr.perf.bench import LABELS, RoundPair, Task, Watcher, pair_of, take, times_of
from pytest_dsocr.perf.calibration import CALIBRATIONS, OFTEN, Calibration, Window, calibrate
from pytest_dsocr.perf.candidate import Candidate
from pytest_dsocr.perf.history import title_of
from pytest_dsocr.perf.limits import limits_of, percent
from pytest_dsocr.perf.rounds import Measured
from pytest_dsocr.perf.schedule import looks_at

FILE_NAME = "calibration.json"
HEAD = ("stage", "false alarms", "ambiguous", "spread", "found from", "allowed")
HOW = "dsocr bench --calibrate A"


def calibrated(
    candidate: Candidate, task: Task, judgements: int, pairs: int, processes: int, watch: Watcher
) -> tuple[Calibration, list[tuple[Measured, Measured]]]:
    """Judge a candidate against itself so many times; give what that says, and what each pair of processes measured.

    Args:
        candidate: both sides of each pair.
        task: what it does.
        judgements: tables that are judged, spread evenly over all pairs of rounds; neighbours share most of theirs.
        pairs: of rounds, in all.
        processes: pairs of processes, one after the other, that take them.
        watch: told how far it is.

    Raises:
        DsocrError: where it cannot be run, or too few rounds were fit for use.
    """
    parts: list[Window] = []
    measured: list[tuple[Measured, Measured]] = []
    identity: dict[str, Any] = {}
    for number in range(processes):
        start, end = (pairs * place // processes for place in (number, number + 1))
        with pair_of([candidate] * len(LABELS), task, _from(start, pairs, watch)) as pair:
            identity = pair.identities[0]
            taken: list[RoundPair] = []
            take(pair, taken, end - start, partial(_from(start, pairs, watch), "rounds in turn"))
        parts.append(times_of(taken, pair.exact))
        measured.append(pair.measured(taken))
    if len(whole := joined(parts)) == 0:
        why = next((clause for two in taken for one in two for clause in one.spoilt), "")
        raise DsocrError(f"no round of {pairs} pairs is fit for use ({why}); let the machine be idle")
    windows = windows_of(whole, judgements, task.most_rounds)
    looks = looks_at(len(whole), task.most_rounds)
    found = calibrate(windows, limits_of(whole, task.slower), looks, [part for part in parts if part])
    return replace(found, made=datetime.now(UTC).date().isoformat(), of=identity), measured


def _from(start: int, pairs: int, watch: Watcher) -> Callable[..., None]:
    """Give what is told how many pairs a process has done, and tells ``watch`` of all."""
    return lambda what, done=0, *_: watch(what, start + done, pairs)


def joined(parts: Sequence[Window]) -> Window:
    """Put the pairs of several processes one after the other."""
    found = [part for part in parts if part]
    names = [name for name in (found[0] if found else ()) if all(name in part for part in found)]
    return {name: tuple([time for part in found for time in part[name][side]] for side in (0, 1)) for name in names}  # type: ignore[misc]


def windows_of(whole: Window, count: int, length: int) -> list[Window]:
    """Give so many windows of consecutive pairs, evenly spread from the first to the last."""
    pairs = min(len(before) for before, _ in whole.values())
    room = max(pairs - length, 0)
    starts = [round(room * place / max(count - 1, 1)) for place in range(count)]
    return [
        {
            name: (before[start : start + length], after[start : start + length])
            for name, (before, after) in whole.items()
        }
        for start in starts
    ]


def write(calibration: Calibration, baselines: Path) -> Path:
    """Write it into its machine's folder, in place of the one that is there; give the file."""
    path = baselines / machine_name(calibration.of["machine"]) / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, calibration.to_bytes())
    return path


def quoted(machine: Mapping[str, Any], places: Sequence[Path], quantities: Sequence[str]) -> Iterator[str]:
    """Yield what the calibration of a machine says of verdicts on these quantities, or why there is none."""
    paths = (place / machine_name(machine) / FILE_NAME for place in places)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        yield from entry("calibration", f"none of this machine ({machine_name(machine)}); to make one: {HOW}")
        return
    try:
        one = CALIBRATIONS.read(path)
    except DsocrError as error:
        yield from entry("calibration", str(error))
        return
    found = [f"{name} {_found(one, name)}" for name in quantities if name in one.smallest_found]
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
    yield from aligned([HEAD, *(_row(one, name) for name in one.spread)], HEAD[:1])
    yield ""
    low, high = one.false_alarm_interval
    yield from entry(
        "false alarms",
        f"in {one.false_alarms} of {count(one.windows, 'table')}, which is {percent(low)} to {percent(high)} of them; "
        f"they were drawn from {count(one.pairs, 'pair')} of rounds, and overlap",
    )
    yield from entry("found from", f"the smallest slowdown that is found {100 * OFTEN:.0f} times in 100")


def _row(one: Calibration, name: str) -> tuple[str, ...]:
    limit, spread = f"+{percent(one.limits[name])}", percent(one.spread[name])
    return (name, str(one.alarms[name]), str(one.ambiguous[name]), spread, _found(one, name), limit)


def _found(one: Calibration, name: str) -> str:
    found = one.smallest_found[name]
    return "never" if found is None else f"+{percent(found)}"
