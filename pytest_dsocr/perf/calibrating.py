"""One side measured against itself, again and again in new processes: what the verdicts of a machine are worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.foundation.words import aligned, count, fit, told
from pytest_dsocr.perf.baseline import machine_name
from pytest_dsocr.perf.bench import LABELS, Task, Watcher, pair_of, settled, times_of
from pytest_dsocr.perf.calibration import OFTEN, Calibration, Window, calibrate
from pytest_dsocr.perf.candidate import Candidate
from pytest_dsocr.perf.history import title_of
from pytest_dsocr.perf.limits import limits_of, percent
from pytest_dsocr.perf.schedule import looks_at

FILE_NAME = "calibration.json"
HEAD = ("stage", "false alarms", "ambiguous", "spread", "found from", "allowed")
HOW = "dsocr bench --calibrate A"


def calibrated(candidate: Candidate, task: Task, judgements: int, processes: int, watch: Watcher) -> Calibration:
    """Judge a candidate against itself so many times, spread over so many pairs of processes.

    Each judgement is what a comparison would make: it takes rounds until all is settled.

    Raises:
        DsocrError: where it cannot be run, or no round was fit for use.
    """
    windows: list[Window] = []
    identity: dict[str, Any] = {}

    def watch_all(what: str, done: int, _: int) -> None:
        watch(f"{what}, {done}", len(windows), judgements)

    for number in range(processes):
        upto = judgements * (number + 1) // processes
        with pair_of([candidate] * len(LABELS), task, watch_all) as pair:
            identity = pair.identities[0]
            while len(windows) < upto:
                pairs, _ = settled(pair, task, watch_all)
                if not (window := times_of(pairs)):
                    why = next((clause for pair in pairs for one in pair for clause in one.spoilt), "")
                    raise DsocrError(f"no round of {len(pairs)} pairs is fit for use ({why}); let the machine be idle")
                windows.append(window)
    found = calibrate(windows, limits_of(windows[0], task.slower), looks_at(len(windows[0]), task.most_rounds))
    return replace(found, made=datetime.now(UTC).date().isoformat(), of=identity)


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
        yield from told("calibration", f"none of this machine ({machine_name(machine)}); to make one: {HOW}")
        return
    try:
        one = Calibration.from_bytes(path.read_bytes())
    except (OSError, ValueError) as error:
        yield from told("calibration", f"{path} is damaged ({error}); make it anew: {HOW}")
        return
    found = [f"{name} {_found(one, name)}" for name in quantities if name in one.smallest_found]
    yield from told(
        "calibration",
        f"{one.false_alarms} of {count(one.windows, 'table')} of this machine against itself had a false alarm; found "
        f"{100 * OFTEN:.0f} times in 100: {', '.join(found) or 'nothing that is timed here'}",
    )
    yield from told("", f"made on {one.made} with {title_of(one.of)}")


def lines_of(one: Calibration) -> Iterator[str]:
    """Yield a calibration for a terminal."""
    yield fit(title_of(one.of))
    yield ""
    yield from aligned([HEAD, *(_row(one, name) for name in one.spread)], HEAD[:1])
    yield ""
    low, high = one.false_alarm_interval
    yield from told(
        "false alarms",
        f"in {one.false_alarms} of {count(one.windows, 'table')}, which is {percent(low)} to {percent(high)} of them",
    )
    yield from told("found from", f"the smallest slowdown that is found {100 * OFTEN:.0f} times in 100")


def _row(one: Calibration, name: str) -> tuple[str, ...]:
    limit, spread = f"+{percent(one.limits[name])}", percent(one.spread[name])
    return (name, str(one.alarms[name]), str(one.ambiguous[name]), spread, _found(one, name), limit)


def _found(one: Calibration, name: str) -> str:
    found = one.smallest_found[name]
    return "never" if found is None else f"+{percent(found)}"
