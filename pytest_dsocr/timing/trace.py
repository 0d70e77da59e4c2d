"""Differences between two traced pages: operators, kernels, waits and lines of Python, and the line responsible.

Counts are exact, so any difference is a finding. One reading's times are not exact: if counts are equal, times matter
only in a stage that many rounds judged slower or faster.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from pytest_dsocr.base.words import aligned, count
from pytest_dsocr.models.spec import DECODE
from pytest_dsocr.timing.traced import KERNEL, PAGE, PYTHON, READS, RUN, WAIT, SourceLine, TraceRow, TraceTable

NOTHING = "no operator, kernel or line explains it"
LONGER, LONGER_ON_HOST = 1.1, 1.5
"""Least ratios of longer calls on the device, and on the host, which has other work as well."""
SHARE, LEAST = 0.05, 0.01
"""Least shares of the stage's time: for longer times to be a finding, and for calls that differ to be listed first."""
BESIDE_CALL_MS = 0.02
"""Time that Python takes to call an operator under the profiler."""
HEAD = ("stage", "what", "A calls", "B calls", "A ms", "B ms", "", "from")
LEFT = ("stage", "what", "", "from")
MOST_SHOWN = 5


Both = tuple[float, float]
"""A's and B's, a run of the stage."""


@dataclass(frozen=True)
class TraceChange:
    """Change in how often or how long one operation runs at one place."""

    stage: str
    kind: str
    name: str
    place: SourceLine | None
    calls: Both
    host_ms: Both
    device_ms: Both
    runs: int
    """Number of runs of the stage."""
    grows: bool

    @property
    def ms(self) -> Both:
        """Milliseconds of the host or the device, whichever differ more."""
        return max(self.host_ms, self.device_ms, key=lambda both: abs(both[1] - both[0]))

    @property
    def more_ms(self) -> float:
        """By how much longer it takes."""
        return self.ms[1] - self.ms[0]

    @property
    def more_calls(self) -> float:
        """Number of additional calls on the second side."""
        return self.calls[1] - self.calls[0]

    @property
    def is_wait(self) -> bool:
        """Whether the host waits for the device in it."""
        return self.kind == WAIT or self.name.removeprefix("aten::") in READS

    @property
    def word(self) -> str:
        """Description of how the second side differs."""
        a, b = self.calls
        if a == b:
            return "slower" if self.more_ms > 0 else "faster"
        return "new" if not a else "gone" if not b else "more" if b > a else "fewer"


@dataclass(frozen=True)
class TraceCause:
    """The changes in one function of a side's own code, in one stage."""

    changes: Sequence[TraceChange]

    @property
    def ms(self) -> float:
        """Milliseconds more a run of the stage: those of the host or of the device, whichever are more."""
        both = [one.host_ms for one in self.changes], [one.device_ms for one in self.changes]
        return max((sum(b - a for a, b in of) for of in both), key=abs)

    @cached_property
    def head(self) -> TraceChange:
        """Change that the others accompany: a stage that runs again, a wait, or what takes longest."""
        in_python = [one for one in self.changes if one.kind == PYTHON]
        others = [one for one in self.changes if one.kind != PYTHON]
        beside = sum(abs(one.more_ms) + abs(one.more_calls) * BESIDE_CALL_MS for one in others)
        if not others or sum(abs(one.more_ms) for one in in_python) > beside:
            return max(in_python, key=lambda one: abs(one.more_ms))
        return max(others, key=lambda one: (one.kind == RUN, one.is_wait, one.kind != KERNEL, abs(one.more_ms)))

    @property
    def sentence(self) -> str:
        """Sentence that states what happened, where, and by how much."""
        head, stage = self.head, _shown(self.head.stage)
        each = {DECODE: " a step", PAGE: " a page"}.get(stage, " a run" if head.runs > 1 else "")
        number = f"{abs(head.more_calls):.4g} {'more' if head.more_calls > 0 else 'fewer'}"
        noun = ("run" if head.kind == RUN else "call") + "s" * (abs(head.more_calls) != 1)
        calls = f"{number} {noun}{each}" if head.more_calls else f"{head.word} in as many calls"
        source = f", from {head.place}" if head.place else ""
        more = f"{_in_figures(self.ms, '+')} ms"
        if head.kind == PYTHON and head.place:
            where = f"{head.place} ({head.place.function}){', as steps grow' * head.grows}"
            return f"{stage}: {more} in Python at {where}"
        if head.kind == RUN and stage == PAGE:
            return f"{_shown(head.name)}: {more}, {calls}{source}"
        return f"{stage}: {more} {'waiting ' * head.is_wait}in {_shown(head.name)}, {calls}{source}"


def _in_figures(ms: float, sign: str = "") -> str:
    return f"{ms:{sign}.0f}" if abs(ms) >= 100 else f"{ms:{sign}.3g}"


def _shown(stage: str) -> str:
    return stage.removeprefix(f"{PAGE}/")


@dataclass(frozen=True)
class TraceDifference:
    """All that differs, what takes longest first."""

    causes: Sequence[TraceCause]

    @property
    def sentence(self) -> str:
        """Sentence on the cause that explains most."""
        return self.causes[0].sentence if self.causes else NOTHING

    @property
    def lines(self) -> Iterator[str]:
        """The table of what explains most."""
        shown = [cause.head for cause in self.causes[:MOST_SHOWN]]
        if shown:
            yield from aligned([HEAD, *map(_cells, shown)], LEFT)
        if rest := sum(len(cause.changes) for cause in self.causes) - len(shown):
            yield f"and {count(rest, 'change')} more"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        changes = [{**asdict(one), "change": one.word} for cause in self.causes for one in cause.changes]
        return {"sentence": self.sentence, "sentences": [one.sentence for one in self.causes], "changes": changes}


def _cells(one: TraceChange) -> tuple[str, ...]:
    numbers = (f"{value:.4g}" for value in one.calls), map(_in_figures, one.ms)
    what = f"{one.kind} {_shown(one.name).rpartition('/')[2]}"[:48]
    return (_shown(one.stage), what, *numbers[0], *numbers[1], one.word, str(one.place or ""))


def difference(a: TraceTable, b: TraceTable, judged: Collection[str] = ()) -> TraceDifference:
    """Compare two tables; changes are grouped by stage and function.

    A change in the separate stages is not repeated for the page that is read whole. The times of equal calls matter
    only in ``judged`` stages, which are known to be slower or faster.
    """
    found: dict[tuple[str, ...], list[TraceChange]] = defaultdict(list)
    for stage in (one for one in b.runs if one in a.runs):
        is_judged = stage in judged or (stage.startswith(PAGE) and PAGE in judged)
        for change in _of_stage(stage, a, b, is_judged):
            found[(stage, *(change.place[:2] if change.place else ()))].append(change)
    once = [
        of for (stage, *place), of in found.items() if stage == _shown(stage) or (_shown(stage), *place) not in found
    ]

    def weight(cause: TraceCause) -> tuple[bool, bool, float]:
        """Order causes: different calls and longer times first, since work that was replaced is no cause."""
        is_felt = abs(cause.ms) > LEAST * a.stage_ms[cause.head.stage]
        felt_calls = is_felt and any(one.more_calls for one in cause.changes)
        return felt_calls, felt_calls and cause.ms > 0, abs(cause.ms) * cause.head.runs

    return TraceDifference(sorted(map(TraceCause, once), key=weight, reverse=True))


def _of_stage(stage: str, a: TraceTable, b: TraceTable, is_judged: bool) -> Iterator[TraceChange]:
    names = dict.fromkeys(key for table in (a, b) for key in table.by_name if key[0] == stage)
    found = [one for key in names for one in _of_name(key, a, b, is_judged)]
    in_python = sum(one.more_ms for one in found if one.kind == PYTHON)
    is_felt = abs(in_python) > SHARE * a.stage_ms[stage]
    yield from (one for one in found if one.kind != PYTHON or is_felt)


def _of_name(key: tuple[str, str, str], a: TraceTable, b: TraceTable, is_judged: bool) -> Iterator[TraceChange]:
    """Yield the changes where one operator, kernel, function or stage has more calls, or takes longer."""
    stage, kind, _ = key
    rows = a.by_name.get(key, []), b.by_name.get(key, [])
    runs = a.runs[stage], b.runs[stage]
    whole = _change(rows, runs)
    if whole.more_calls:
        yield from [_run_again(rows, runs)] if kind == RUN else _more(rows, runs)
    elif is_judged and kind not in (RUN, WAIT):
        by = LONGER if kind == KERNEL else LONGER_ON_HOST
        if abs(whole.more_ms) > SHARE * a.stage_ms[stage] and max(whole.ms) > by * min(whole.ms):
            yield max(_at_places(rows, runs), key=lambda one: abs(one.more_ms))


Rows = tuple[Sequence[TraceRow], Sequence[TraceRow]]


def _change(rows: Rows, runs: tuple[int, int], place: SourceLine | None = None) -> TraceChange:
    one = (*rows[1], *rows[0])[0]
    sums = [
        [sum(getattr(row, of) for row in side) for side in rows] for of in ("count", "host_ms", "device_ms", "growth")
    ]
    (a, b), host, device, (before, after) = sums
    calls = a / runs[0], b / runs[1]
    place = place or next(reversed(one.path), None)
    return TraceChange(one.stage, one.kind, one.name, place, calls, (*host,), (*device,), runs[1], after > before)


def _more(rows: Rows, runs: tuple[int, int]) -> Iterator[TraceChange]:
    """Yield the places with more calls, or with fewer, until these are all; calls that moved are none."""
    places = _at_places(rows, runs)
    left = sum(one.more_calls for one in places)
    for one in sorted(places, key=lambda one: one.more_calls, reverse=left > 0):
        if left * one.more_calls <= 0:
            return
        yield one
        left = left - one.more_calls if abs(one.more_calls) < abs(left) else 0


def _at_places(rows: Rows, runs: tuple[int, int]) -> list[TraceChange]:
    """Return one change for each line, whatever its number, and one for each of Python's functions."""
    by_place: dict[Any, tuple[list[TraceRow], list[TraceRow]]] = defaultdict(lambda: ([], []))
    for side, of in enumerate(rows):
        for row in of:
            by_place[row.kind != PYTHON and _known(row.path)[-1:]][side].append(row)
    return [_change(of, runs) for of in by_place.values()]


def _known(path: Sequence[SourceLine]) -> tuple[tuple[str, ...], ...]:
    return tuple((one.file, one.function, one.text) for one in path)


def _run_again(rows: Rows, runs: tuple[int, int]) -> TraceChange:
    """Blame the outermost line that leads to the stage on one side alone; that side's time there is what it adds."""
    fewer, more = sorted(rows, key=lambda of: sum(row.count for row in of))
    paths = [_known(row.path) for row in fewer]
    others = [row for row in more if not any(path and _known(row.path)[-len(path) :] == path for path in paths)]
    path = max(others or more, key=lambda row: row.count).path
    lines = {line for of in paths for line in of}
    found = _change(rows, runs, next((one for one in path if _known([one])[0] not in lines), (*path, None)[0]))
    if not others:
        return found
    least, added = sum(row.host_ms for row in fewer), sum(row.host_ms for row in others)
    return replace(found, host_ms=(least, least + added) if more is rows[1] else (least + added, least))
