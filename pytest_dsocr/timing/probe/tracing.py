"""A page of a side traced by torch's profiler: our stages as tracks, and a table of what runs in each.

The page is read three times: twice with the profiler, whose shorter times count, and once for the lines.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from pytest_dsocr.timing.probe.lines import BEFORE, Lines, Marks, Own, stage_of
from pytest_dsocr.timing.probe.stopwatch import growth
from pytest_dsocr.timing.traced import KERNEL, OPERATOR, PAGE, PYTHON, RUN, WAIT, SourceLine, TraceRow, TraceTable

if TYPE_CHECKING:
    from pytest_dsocr.timing.probe.page import PageProbe

Event = dict[str, Any]
TIMES = 2
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
SYNCHRONISE, COPIES = "Synchronize", ("cudaMemcpy", "cudaMemcpy2D")
"""Names of the runtime's calls that make the host wait: their ending, or the whole name."""
SHORTEST_US = 0.001
FEWEST = 3
"""Least number of runs of a stage from which its counts can be found to grow."""
PROCESS = 1
"""Process of all tracks, so that a viewer opens it; its thread of this number has our stages and is shown first."""
EventKey = tuple[str, str, str, tuple[SourceLine, ...]]
"""The stage, the kind, the name, and the places that lead there, the innermost last."""


def trace(probe: PageProbe, own: Own, path: Path) -> dict[str, Any]:
    """Trace one page; write its trace, and return its :class:`~pytest_dsocr.timing.traced.TraceTable` as JSON."""
    lines = Lines(Marks(own))
    with lines.noting():
        _read(probe, lines.marks)
    profiles = (profiled(lambda: _read(probe, Marks(own)), probe.device, with_stack=True) for _ in range(TIMES))
    readings = [ProfileReading(events, lines) for events in profiles]
    side = path.name.partition(".")[0]
    path.write_text(json.dumps(readings[0].trace(side), separators=(",", ":")), encoding="utf-8")
    tables = [reading.rows() for reading in readings]
    rows = []
    for key, row in tables[0].items():
        both = [table.get(key, row) for table in tables]
        host_ms, device_ms = min(one.host_ms for one in both), min(one.device_ms for one in both)
        rows.append(replace(row, host_ms=host_ms, device_ms=device_ms))
    return asdict(TraceTable(dict(readings[0].runs), rows))


def _read(probe: PageProbe, marks: Marks) -> None:
    """Read the page stage by stage, if the subject has stages, and whole."""
    with torch.no_grad(), marks.nvtx():
        if probe.has_stages:
            probe.walk(marks).whole()
        with marks.lap(PAGE):
            probe.read()
            marks.finish()
        if probe.device.startswith("cuda"):
            torch.cuda.synchronize(probe.device)


def profiled(read: Callable[[], None], device: str, *, with_stack: bool = False) -> list[Event]:
    """Return the events of torch's profiler while something is read."""
    on = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * device.startswith("cuda")
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        with profile(activities=on, with_stack=with_stack) as profiler:
            read()
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        found: list[Event] = json.loads(file.read_bytes())["traceEvents"]
    return found


class ProfileReading:
    """Contents of one profile, with the lines of another reading of the same page."""

    def __init__(self, events: Sequence[Event], lines: Lines) -> None:
        self.lines = lines
        self.runs: Counter[str] = Counter()
        """By stage, how often it ran."""
        self.shown: list[Event] = []
        self._us: dict[EventKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        """The microseconds of each call, by run of its stage."""
        self._python: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        """By stage, file and function the microseconds in which no operator is at work, by run."""
        self._functions = {place[:2] for _, place in lines.ran}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._launched: dict[int, tuple[str, tuple[SourceLine, ...]]] = {}
        self._open: tuple[list[Event], list[Event], list[Event]] = ([], [], [])
        """Runs of stages, own functions, and the operator that the other reading noted; the innermost last."""
        self._path: tuple[SourceLine, ...] = ()
        whole = [event for event in events if event["ph"] == "X"]
        mine = next(event["tid"] for event in whole if _is_stage(event))
        on_gpu = [event for event in whole if event.get("cat") in ON_GPU]
        self._thread(
            [one for one in whole if one.get("cat") in CALLS or (one["tid"] == mine and one.get("cat") not in ON_GPU)]
        )
        for event in on_gpu:
            if launch := self._launched.get(event["args"].get("correlation")):
                self._add(*launch, KERNEL, event)
                self._show(event, launch[1])

    def _thread(self, events: Sequence[Event]) -> None:
        """Process all starts and ends in order; a stage may end in another function than it starts in."""
        runs, functions, operators = self._open
        since = 0.0
        begins = [(event["ts"], 1, -event["dur"], k) for k, event in enumerate(events)]
        ends = [(event["ts"] + max(event["dur"], SHORTEST_US), 0, 0.0, k) for k, event in enumerate(events)]
        for ts, is_begin, _, k in sorted(begins + ends):
            if runs and functions and not operators:
                self._python[(stage_of(self._run), *_function(functions[-1]))][self._run] += ts - since
            since = ts
            if is_begin:
                self._begin(events[k])
            else:
                for of in self._open:
                    of[:] = [one for one in of if one is not events[k]]

    @property
    def _run(self) -> str:
        return str(self._open[0][-1]["name"]).removeprefix(BEFORE)

    def _begin(self, event: Event) -> None:
        runs, functions, operators = self._open
        kind, name = event.get("cat"), str(event["name"])
        if _is_stage(event):
            run = name.removeprefix(BEFORE)
            if runs:
                self._add(self._run, self.lines.marks.paths.get(run, ()), RUN, {**event, "name": stage_of(run)})
            self.runs[stage_of(run)] += 1
            self._show({**event, "name": run.removeprefix(f"{PAGE}/"), "cat": "stage"}, ())
            runs.append(event)
        elif kind == "python_function" and _function(event) in self._functions:
            functions.append(event)
            if runs:
                file, function = _function(event)
                self._show({**event, "name": f"{function} ({Path(file).name})"}, [name.rpartition(": ")[0]])
        elif runs and kind == "cpu_op" and not operators:
            calls, number = self.lines.calls.get((self._run, name), ()), self._seen[self._run, name]
            if number < len(calls):  # the other reading notes no operator that another calls
                self._seen[self._run, name] += 1
                self._path = (place,) if (place := calls[number]) else ()
                operators.append(event)
                self._add(self._run, self._path, OPERATOR, event)
                self._show(event, self._path)
        elif runs and kind in CALLS:
            path = self._path if operators else ()
            self._launched[event["args"].get("correlation")] = self._run, path
            if name.endswith(SYNCHRONISE) or name in COPIES:
                self._add(self._run, path, WAIT, {**event, "dur": 0 if operators else event["dur"]})

    def _add(self, run: str, path: tuple[SourceLine, ...], kind: str, event: Event) -> None:
        self._us[stage_of(run), kind, event["name"], path][run].append(event["dur"])

    def _show(self, event: Event, path: Sequence[SourceLine | str]) -> None:
        kept = {name: event[name] for name in ("ph", "name", "cat", "pid", "tid", "ts", "dur")}
        self.shown.append({**kept, "args": {"from": str(path[-1])} if path else {}})

    @property
    def kernels(self) -> Iterator[tuple[str, str, list[float]]]:
        """Yield a GPU's kernels: the run of a stage that launched them, their name, and each call's microseconds."""
        for (_, kind, name, _), by_run in self._us.items():
            if kind == KERNEL:
                yield from ((run, name, us) for run, us in by_run.items())

    def rows(self) -> dict[EventKey, TraceRow]:
        """Return the table's rows."""
        rows = {}
        for key, us in self._us.items():
            rows[key] = self._row(key, {run: len(of) for run, of in us.items()}, [sum(of) for of in us.values()])
        lines: dict[tuple[str, str, str], list[tuple[str, SourceLine]]] = defaultdict(list)
        for run, place in self.lines.ran:
            lines[(stage_of(run), *place[:2])].append((run, place))
        for at, of in lines.items():
            if at[0]:  # else between two stages
                ran: Counter[str] = Counter()
                for run, place in of:
                    ran[run] += self.lines.ran[run, place]
                hottest: Counter[SourceLine] = Counter()
                for one in of:
                    hottest[one[1]] += self.lines.ns[one]
                key = at[0], PYTHON, ":".join(at[1:]), (hottest.most_common(1)[0][0],)
                rows[key] = self._row(key, ran, [self._python[at][run] for run in ran])
        return rows

    def _row(self, key: EventKey, counts: Mapping[str, int], us: Sequence[float]) -> TraceRow:
        stage, kind = key[:2]
        runs = self.runs[stage]
        by_run = [counts.get(f"{stage} {number}", 0) for number in range(runs)]
        ms = median(us) * len(us) / runs / 1e3
        host_ms, device_ms = (0.0, ms) if kind == KERNEL else (ms, 0.0)
        return TraceRow(*key, sum(by_run), host_ms, device_ms, growth(by_run) if runs >= FEWEST else 0)

    def trace(self, side: str) -> dict[str, Any]:
        """Return the trace in Chrome's format, from time 0: a process named as the side, each track a thread of it."""
        start = min(event["ts"] for event in self.shown)
        tracks: dict[tuple[str, ...], list[Event]] = defaultdict(list)
        for event in self.shown:
            tracks[_track(event)].append({**event, "ts": round(event["ts"] - start, 3)})
        found = [_meta("process_name", PROCESS, side)]
        for tid, ((name, *stream), events) in enumerate(tracks.items(), PROCESS):
            found.append(_meta("thread_name", tid, name))
            found += [{**event, "pid": PROCESS, "tid": tid} for event in (_in_turn(events) if stream else events)]
        return {"traceEvents": found}


def _track(event: Event) -> tuple[str, ...]:
    of_host = {"stage": "stages", "cpu_op": "operators", "python_function": "operators"}
    return (name,) if (name := of_host.get(event["cat"])) else ("kernels", event["pid"], event["tid"])


def _in_turn(events: Sequence[Event]) -> Iterator[Event]:
    """Yield a stream's events, each cut at the next one's start.

    With programmatic dependent launch a kernel may start before the one that it waits for ends, and viewers drop
    overlaps.
    """
    following = sorted(events, key=lambda one: one["ts"])
    for event, after in zip_longest(following, following[1:]):
        yield {**event, "dur": min(event["dur"], round(after["ts"] - event["ts"], 3))} if after else event


def _meta(what: str, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": PROCESS, "tid": tid, "ts": 0, "args": {"name": name}}


def _is_stage(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith(BEFORE)


def _function(event: Event) -> tuple[str, str]:
    """Return the file and the function of ``engine/cache.py(60): append``."""
    where, _, function = event["name"].rpartition(": ")
    return where.rpartition("(")[0], function
