"""``dsocr history``: what was found and measured night by night and run by run, as text and as a page."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.night import record, spells
from pytest_dsocr.night.page import html
from pytest_dsocr.perf import history as of_times
from pytest_dsocr.report.file import read_result


def run(options: Namespace) -> Iterator[str]:
    """Yield a history as text; write the page where ``--html`` says. The status is 1 where nothing could be read.

    Raises:
        DsocrError: where there is no history, a result to add cannot be read, or something cannot be written.
    """
    place: Path = options.place
    if place.suffix == ".jsonl" and options.add:
        raise DsocrError(f"{place} takes times only; name a folder, to which nights are added as files")
    for result in options.add or ():
        yield f"{'added':<16}{record.add(place, record.of_run(read_result(result)))}"
    nights, damaged = record.read(place) if place.is_dir() else ([], [])
    series, torn = _times(place, nights, is_needed=not (nights or damaged))
    yield from spells.lines(nights, damaged)
    yield from of_times.lines_of(series, torn)
    if options.html:
        page = html(nights, series, [*damaged, *torn]) if nights else of_times.html(series, torn)
        write_whole(options.html, page.encode("utf-8", "replace"))
        yield f"{'written':<16}{options.html}"
    if not (series or nights):
        raise DsocrError(f"{place} holds no line that can be read")


def _times(place: Path, nights: list[record.Night], *, is_needed: bool) -> tuple[list[of_times.Series], list[str]]:
    """Read times, those of the nights among them."""
    has_file = place.is_file() or any(place.rglob(of_times.FILE_NAME))
    series, torn = of_times.read(place) if has_file or is_needed else ([], [])
    lines = [line for one in series for line in one.lines]
    return of_times.in_series([*lines, *(line for night in nights for line in night.times)]), torn
