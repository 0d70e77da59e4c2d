"""What an Nsight Systems report holds, as the table of a traced page: ranges of domain ``dsocr``, kernels and waits.

A kernel belongs to the innermost range that was open, on its thread, as it was launched.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.traced import DOMAIN, KERNEL, RUN, WAIT, Row, Table

RANGES = """
    SELECT n.start, n.end, n.globalTid, coalesce(n.text, s.value) FROM NVTX_EVENTS n
    LEFT JOIN StringIds s ON n.textId = s.id
    JOIN (SELECT DISTINCT d.domainId, d.globalTid >> 24 AS process FROM NVTX_EVENTS d
          LEFT JOIN StringIds t ON d.textId = t.id WHERE d.eventType = 75 AND coalesce(d.text, t.value) = ?) domain
    ON n.domainId = domain.domainId AND n.globalTid >> 24 = domain.process
    WHERE n.eventType IN (59, 60, 70, 71) AND n.end IS NOT NULL"""
"""Pushed and popped, or started and ended; 75 makes a domain."""
CALLS = """
    SELECT r.start, r.end, r.globalTid, s.value, r.correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME r
    JOIN StringIds s ON r.nameId = s.id"""
KERNELS = """
    SELECT k.globalPid >> 24, k.correlationId, k.end - k.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON k.demangledName = s.id"""
WAITS = "Synchronize"
"""What a call of the runtime holds that makes the host wait."""
REMEDY = "give what nsys export --type sqlite writes, of a run with --trace=cuda,nvtx"


class Span(NamedTuple):
    """A range, or a call of the runtime, in nanoseconds."""

    start: int
    end: int
    thread: int
    name: str
    correlation: int | None = None
    """Of a call, that of the kernels which it launches."""


def read(path: Path) -> Table:
    """Read a report that was exported to SQLite.

    Raises:
        DsocrError: where it is none, or holds no range of domain ``dsocr``.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as report:
            ranges = [Span(*row) for row in report.execute(RANGES, (DOMAIN,))]
            calls = [Span(*row) for row in report.execute(CALLS)]
            kernels = report.execute(KERNELS).fetchall()
    except sqlite3.Error as error:
        raise DsocrError(f"{path} is no report with NVTX and CUDA in it ({error}); {REMEDY}") from error
    if not ranges:
        raise DsocrError(f"{path} holds no NVTX range of domain {DOMAIN}; {REMEDY}, whose subject opens them")
    return _table(ranges, calls, kernels)


def _table(ranges: list[Span], calls: list[Span], kernels: list[Any]) -> Table:
    runs: Counter[str] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    ns: Counter[tuple[str, str, str]] = Counter()
    launched: dict[tuple[int, int | None], str] = {}
    for stage, span in _within([*ranges, *calls]):
        if span.correlation is None:
            runs[span.name] += 1
        else:
            launched[span.thread >> 24, span.correlation] = stage
        if stage and (span.correlation is None or WAITS in span.name):
            key = stage, RUN if span.correlation is None else WAIT, span.name.partition("_v")[0]
            count[key] += 1
            ns[key] += span.end - span.start
    for process, correlation, lasted_ns, name in kernels:
        if stage := launched.get((process, correlation), ""):
            count[stage, KERNEL, name] += 1
            ns[stage, KERNEL, name] += lasted_ns
    rows = []
    for (stage, kind, name), number in count.items():
        ms = ns[stage, kind, name] / 1e6 / runs[stage]
        rows.append(Row(stage, kind, name, (), number, *((0.0, ms) if kind == KERNEL else (ms, 0.0))))
    return Table(runs, rows)


def _within(spans: list[Span]) -> Iterator[tuple[str, Span]]:
    """Yield each span with the innermost range around it; a range within one of its own name is no other."""
    open_: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        around = open_[span.thread]
        around[:] = [one for one in around if one.end > span.start]
        if span.name not in (one.name for one in around):
            yield (around[-1].name if around else ""), span
        if span.correlation is None:
            around.append(span)
