"""A night as Markdown, and as annotations where CI is GitHub's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.nights.spending import COLUMNS, Rate, Row, rates, rows
from pytest_dsocr.nights.state import PASSES, Entry, NightState, Step
from pytest_dsocr.report import ci
from pytest_dsocr.report.file import read_result
from pytest_dsocr.report.markdown import SUMMARY_NAME, cell, part, table, wrong_cases

Told = Sequence[tuple[Entry, Mapping[str, Any]]]
"""Each job with its result; an empty one where there is none."""
TIMED = ("job", "process", "pages", "seconds", *COLUMNS)
RATED = ("part", "processes", "pages", "seconds", "pages an hour", "of it loading")


def results(night: NightState, out: Path) -> Told:
    """Read what each job of a night wrote."""
    return [(entry, result_of(entry, out)) for entry in night.entries]


def result_of(entry: Entry, out: Path) -> Mapping[str, Any]:
    """Read what a job wrote; give nothing where it wrote no result to its end."""
    try:
        return read_result(out / entry.name) if entry.ended else {}
    except DsocrError:
        return {}


def write_summary(night: NightState, found: Told, out: Path) -> None:
    """Write ``summary.md``; raise ``DsocrError`` where the disk does not take it."""
    write_whole(out / SUMMARY_NAME, markdown(night, found).encode("utf-8", "replace"))


def markdown(night: NightState, found: Told) -> str:
    """Give the night for a comment, a mail, or a job's summary."""
    return "\n".join(_lines(night, found)) + "\n"


def for_github(found: Told) -> Iterator[str]:
    """Yield GitHub's commands: of each job the tests that failed, or why there is nothing of it."""
    return islice(_annotations(found), ci.MOST)


def timed(found: Told) -> tuple[list[Row], list[Rate]]:
    """Give where the time went, process by process, and part by part."""
    by_job = [(entry, [*rows(entry, result)]) for entry, result in found]
    return [row for _, of_job in by_job for row in of_job], [*rates(by_job)]


def cells_of(row: Row) -> tuple[str, ...]:
    """Give a row as texts, under :data:`TIMED`."""
    seconds = (f"{row.seconds[name]:.1f}" for name in COLUMNS)
    return row.job, row.process, str(row.pages), f"{row.total_s:.1f}", *seconds


def cells_of_rate(rate: Rate) -> tuple[str, ...]:
    """Give a rate as texts, under :data:`RATED`."""
    numbers = (str(rate.processes), str(rate.pages), f"{rate.total_s:.1f}", f"{rate.an_hour:.0f}")
    return rate.part, *numbers, f"{rate.loading:.0%}"


def _lines(night: NightState, found: Told) -> Iterator[str]:
    yield f"## DeepSeek-OCR, a night: {night.verdict.partition(':')[0]}"
    yield ""
    yield cell(night.verdict)
    yield ""
    yield from table(("", ""), [*_about(night)])
    heading = ("job", "verdict", "pages", "seconds", "what was found")
    yield from part("Jobs", table(heading, [_job(entry) for entry, _ in found]))
    wrong = [(entry.name, *case) for entry, result in found for case in wrong_cases(result)]
    yield from part("What is wrong", table(("job", "case", "stage", "measured", "likely cause"), wrong))
    by_process, by_part = timed(found)
    yield from part("Pages an hour", table(RATED, [*map(cells_of_rate, by_part)]))
    yield from part("Where the time went, in seconds", table(TIMED, [*map(cells_of, by_process)]))
    yield from part("To run again", (f"    {entry.command}" for entry, _ in found if entry.grade not in (None, PASSES)))


def _about(night: NightState) -> Iterator[tuple[str, str]]:
    config = night.config
    yield "model", ", ".join((config.subject, config.checkpoint, config.device, config.dtype, config.attention))
    yield "commit", night.commit or "unknown"
    yield "time", f"{night.started} to {night.ended or 'now'}"
    yield "GPUs", "; ".join(night.facts.get("gpus", ())) or "none"


def _job(entry: Entry) -> tuple[str, ...]:
    return entry.name, entry.word, str(len(entry.pages) or ""), f"{entry.seconds:.0f}", entry.why or entry.verdict


def _annotations(found: Told) -> Iterator[str]:
    for entry, result in found:
        if entry.grade in (None, PASSES):
            continue
        of_tests = [*ci.errors(result)] if result else []
        kind = "warning" if entry.step is Step.LEFT_OUT else "error"
        told = f"{entry.word}; {entry.why or entry.verdict or f'exit status {entry.status}'}"
        yield from of_tests or ci.annotation(kind, f"night: {entry.name}", told)
