"""``dsocr trace import``: reports of Nsight Systems as a table by stage, or what differs between two."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr.foundation.words import aligned
from pytest_dsocr.perf.nsight import read
from pytest_dsocr.perf.trace import difference

HEAD = ("stage", "runs", "what", "calls a run", "ms a run")


def add_import_report(command: ArgumentParser) -> None:
    """Add the report, and another to compare it with."""
    what = "a report that nsys export --type sqlite wrote"
    command.add_argument("report", type=Path, metavar="REPORT", help=what)
    command.add_argument("other", type=Path, nargs="?", metavar="OTHER", help="a later one: say what differs")


def import_report(options: Namespace) -> Iterator[str]:
    """Yield the table of one report, or what differs between two.

    Raises:
        DsocrError: where a report cannot be read.
    """
    table = read(options.report)
    if options.other:
        found = difference(table, other := read(options.other), [*table.runs, *other.runs])
        yield found.sentence
        yield from found.lines
        return
    order = [*table.runs]
    cells = []
    for row in sorted(table.rows, key=lambda row: (order.index(row.stage), -row.device_ms - row.host_ms)):
        runs, ms = table.runs[row.stage], f"{row.device_ms + row.host_ms:.3g}"
        cells.append((row.stage, str(runs), f"{row.kind} {row.name}"[:72], f"{row.count / runs:.4g}", ms))
    yield from aligned([HEAD, *cells], ("stage", "what"))
