"""One page of a side traced by torch's profiler: our stages as tracks, and a table of what runs in each.

The page is read three times: twice by the profiler, of whose times the shorter counts, and once for the lines.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile

from pytest_dsocr.perf.probe.counting import growth
from pytest_dsocr.perf.probe.gpu_work import BEFORE
from pytest_dsocr.perf.probe.lines import Lines, Marks, Own, stage_of
from pytest_dsocr.perf.trace import KERNEL, OPERATOR, PAGE, PYTHON, RUN, WAIT, Place

if TYPE_CHECKING:
    from pytest_dsocr.perf.probe.page import PageProbe

Event = dict[str, Any]
TIMES = 2
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
SYNCHRONISE, COPIES = "Synchronize", ("cudaMemcpy", "cudaMemcpy2D")
"""How the runtime's calls are named, at the end or whole, that make the host wait."""
SHORTEST_US = 0.001
FEWEST = 3
"""Runs of a stage whose counts can be said to grow."""
STAGES = {"pid": 999_999, "tid": 1}
"""The track of our stages: no process and no thread, nor a GPU and its stream, which begin with 0."""


@dataclass
class Open:
    """What is open on the thread, the innermost last."""

    runs: list[Event] = field(default_factory=list)
    functions: list[Event] = field(default_factory=list)
    """Of the side's own code."""
    operators: list[Event] = field(default_factory=list)
    """None, or the outermost that the other reading noted."""
    path: tuple[Place, ...] = ()
    """Where the operator is called."""

    @property
    def run(self) -> str:
        """The run of a stage."""
        return str(self.runs[-1]["name"]).removeprefix(BEFORE)

    def end(self, event: Event) -> None:
        """Take out what ends."""
        for events in (self.runs, self.functions, self.operators):
            events[:] = [one for one in events if one is not event]
        self.path = self.path if self.operators else ()

    def copy(self) -> Open:
        """Return it as it is now."""
        return Open([*self.runs], [*self.functions], [*self.operators], self.path)


@dataclass
class Sum:
    """How often something ran, and its microseconds, by run of its stage."""

    count: Counter[str] = field(default_factory=Counter)
    us: Counter[str] = field(default_factory=Counter)


Key = tuple[str, str, str, tuple[Place, ...]]
"""The stage, the kind, the name, and the places that lead there, the innermost last."""


def trace(probe: PageProbe, own: Own, path: Path) -> dict[str, Any]:
    """Trace one page; write its trace, and return the table as :class:`pytest_dsocr.perf.trace.Table` reads it."""
    lines = _read(probe, own, None)
    readings = [Reading(_profiled(probe, own), lines) for _ in range(TIMES)]
    path.write_text(json.dumps(readings[0].trace, separators=(",", ":")), encoding="utf-8")
    tables = [reading.rows() for reading in readings]
    rows = [
        {**row, **{unit: min(table.get(key, row)[unit] for table in tables) for unit in ("host_ms", "device_ms")}}
        for key, row in tables[0].items()
    ]
    return {"runs": readings[0].runs, "rows": rows}


def _read(probe: PageProbe, own: Own, profiler: Any) -> Lines:
    """Read the page stage by stage, where the subject has stages, and whole."""
    marks = Marks(own)
    lines = Lines(marks)
    with torch.no_grad(), marks.nvtx(), profiler or lines.noting():
        if probe.has_stages:
            probe.walk(marks).whole()
        with marks.lap(PAGE):
            probe.read()
            marks.finish()
        if probe.device.startswith("cuda"):
            torch.cuda.synchronize(probe.device)
    return lines


def _profiled(probe: PageProbe, own: Own) -> list[Event]:
    """Return the events of torch's profiler."""
    on = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * probe.device.startswith("cuda")
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        profiler = profile(activities=on, with_stack=True)
        _read(probe, own, profiler)
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        found: list[Event] = json.loads(file.read_bytes())["traceEvents"]
    return found


class Reading:
    """What one profile says, with the lines of another reading of the same page."""

    def __init__(self, events: Sequence[Event], lines: Lines) -> None:
        self.lines = lines
        self.sums: dict[Key, Sum] = defaultdict(Sum)
        self.runs: Counter[str] = Counter()
        """By stage, how often it ran."""
        self.shown: list[Event] = []
        self.python: Counter[tuple[str, tuple[str, str]]] = Counter()
        """By run of a stage and function, the microseconds in which no operator is at work."""
        self._functions = {(place.file, place.function) for _, place in lines.ran}
        self._seen: Counter[tuple[str, str]] = Counter()
        self._launched: dict[int, Open] = {}
        whole = [event for event in events if event["ph"] == "X"]
        mine = next((event["tid"] for event in whole if _is_stage(event)), None)
        self._thread([event for event in whole if event["tid"] == mine and event.get("cat") not in ON_GPU])
        for event in (event for event in whole if event.get("cat") in ON_GPU):
            if at := self._launched.get(event["args"].get("correlation")):
                self._add(at, KERNEL, event)
                self._show(event, at)

    def _thread(self, events: Sequence[Event]) -> None:
        """Go from one beginning or end to the next; stages may end in another function than they begin in."""
        at, since = Open(), 0.0
        begins = [(event["ts"], 1, -event["dur"], k) for k, event in enumerate(events)]
        ends = [(event["ts"] + max(event["dur"], SHORTEST_US), 0, 0.0, k) for k, event in enumerate(events)]
        for ts, is_begin, _, k in sorted(begins + ends):
            if at.runs and at.functions and not at.operators:
                self.python[at.run, _function(at.functions[-1])] += ts - since
            since, event = ts, events[k]
            if is_begin:
                self._begin(event, at)
            else:
                at.end(event)

    def _begin(self, event: Event, at: Open) -> None:
        kind, name = event.get("cat"), str(event["name"])
        if _is_stage(event):
            run = name.removeprefix(BEFORE)
            if at.runs:
                self._add(replace(at, path=self.lines.marks.paths.get(run, ())), RUN, event, stage_of(run))
            self.runs[stage_of(run)] += 1
            self.shown.append(
                {"ph": "X", "name": run, "cat": "stage", **STAGES, "ts": event["ts"], "dur": event["dur"]}
            )
            at.runs.append(event)
        elif kind == "python_function" and _function(event) in self._functions:
            at.functions.append(event)
            if at.runs:
                self._show(event, at)
        elif at.runs and kind == "cpu_op" and not at.operators and self._is_noted(at.run, name):
            at.operators.append(event)
            at.path = self._path(at.run, name)
            self._add(at, OPERATOR, event)
            self._show(event, at)
        elif at.runs and kind in CALLS:
            self._launched[event["args"].get("correlation")] = at.copy()
            if name.endswith(SYNCHRONISE) or name in COPIES:
                self._add(at, WAIT, event)

    def _is_noted(self, run: str, name: str) -> bool:
        """Return whether the other reading noted that call; it notes no operator that another calls."""
        return self._seen[run, name] < len(self.lines.calls.get((run, name), ()))

    def _path(self, run: str, name: str) -> tuple[Place, ...]:
        """Return the line that the other reading had for that call of an operator."""
        place = self.lines.calls[run, name][self._seen[run, name]]
        self._seen[run, name] += 1
        return (place,) if place else ()

    def _add(self, at: Open, kind: str, event: Event, name: str = "") -> None:
        found = self.sums[stage_of(at.run), kind, name or event["name"], at.path]
        found.count[at.run] += 1
        found.us[at.run] += 0 if kind == WAIT and at.operators else event["dur"]

    def _show(self, event: Event, at: Open) -> None:
        kept = {name: event[name] for name in ("ph", "name", "cat", "pid", "tid", "ts", "dur")}
        self.shown.append({**kept, "args": {"from": str(at.path[-1])} if at.path else {}})

    def rows(self) -> dict[Key, dict[str, Any]]:
        """Return the table's rows."""
        self._add_python()
        return {key: self._row(key, found) for key, found in self.sums.items()}

    def _add_python(self) -> None:
        """Add what Python itself takes of each function; its place is the line that takes most."""
        ns: dict[tuple[str, tuple[str, str]], Counter[Place]] = defaultdict(Counter)
        ran: dict[tuple[str, tuple[str, str]], Counter[str]] = defaultdict(Counter)
        for (run, place), count in self.lines.ran.items():
            if not run:
                continue  # between two stages
            key = stage_of(run), (place.file, place.function)
            ns[key][place] += self.lines.ns[run, place]
            ran[key][run] += count
        for (stage, function), of_lines in ns.items():
            us = Counter({run: self.python[run, function] for run in ran[stage, function]})
            hottest = max(of_lines, key=lambda place: of_lines[place])
            self.sums[stage, PYTHON, ":".join(function), (hottest,)] = Sum(ran[stage, function], us)

    def _row(self, key: Key, found: Sum) -> dict[str, Any]:
        stage, kind, name, path = key
        runs = self.runs[stage]
        by_run = [found.count[f"{stage} {number}"] for number in range(runs)]
        ms = median(found.us.values()) * len(found.us) / runs / 1e3
        on_gpu = kind == KERNEL
        return {
            **{"stage": stage, "kind": kind, "name": name, "path": path, "count": sum(by_run)},
            **{"host_ms": 0.0 if on_gpu else ms, "device_ms": ms if on_gpu else 0.0},
            "growth": growth(by_run) if runs >= FEWEST else 0,
        }

    @property
    def trace(self) -> dict[str, Any]:
        """The trace as Chrome's format has it, times from its beginning."""
        start = min(event["ts"] for event in self.shown)
        named = [_meta("process_name", **STAGES, name="stages"), _meta("process_sort_index", **STAGES, sort_index=-1)]
        for pid, tid, cat in dict.fromkeys((one["pid"], one["tid"], _track(one)) for one in self.shown):
            named.append(_meta("thread_name", pid, tid, name=f"{cat} {tid}"))
        events = [{**event, "ts": round(event["ts"] - start, 3)} for event in self.shown]
        return {"traceEvents": [*named, *events], "displayTimeUnit": "ms"}


def _track(event: Event) -> str:
    return {"stage": "stages", "cpu_op": "thread", "python_function": "thread"}.get(event["cat"], "stream")


def _meta(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _is_stage(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith(BEFORE)


def _function(event: Event) -> tuple[str, str]:
    """Return the file and the function of ``engine/cache.py(60): append``."""
    where, _, function = event["name"].rpartition(": ")
    return where.rpartition("(")[0], function
