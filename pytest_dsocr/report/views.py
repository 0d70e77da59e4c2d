"""A result as Markdown and as an HTML page that needs no network, made from what the JSON file keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.base.files import templates
from pytest_dsocr.base.words import count, entry, fit, listed, plain, relative_path, short
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.report import words
from pytest_dsocr.report.budget import two_digits
from pytest_dsocr.report.cause import also_failed, by_first, function_of, label, others_failed, where_broke
from pytest_dsocr.report.comparison_result import Number, number
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.file import Unfinished
from pytest_dsocr.report.plot import LEGEND, heat_of, plot_of
from pytest_dsocr.report.strip import CARRIED, boxes_of, short_error, strips
from pytest_dsocr.report.times import rows

if TYPE_CHECKING:
    from jinja2 import Environment

    from pytest_dsocr.reference.drift import VendorChange


MOST, MOST_STRIPS, NAMED, COLUMNS = 50, 6, 6, 300
OF_CAUSES = ("test", "as", "found", "why", "also failed")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~]|:(?=//)|(?<=www)\.)", re.IGNORECASE)
"""Characters that Markdown interprets, including those that turn an address into a link."""
ResultView = RunJson | Unfinished


def markdown(result: ResultView) -> str:
    """Return the summary of a finished or refused run; text of the subject is escaped."""
    return "\n".join(_lines(result)) + "\n"


def table(heading: Sequence[str], found: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table of the first rows, and the number of the others; nothing without rows."""
    if not found:
        return
    yield f"| {' | '.join(heading)} |"
    yield "| --- " * len(heading) + "|"
    for row in found[:MOST]:
        yield f"| {' | '.join(map(cell, row))} |"
    if len(found) > MOST:
        yield ""
        yield f"and {len(found) - MOST} more"


def cell(text: object) -> str:
    """Return a text on one line, without markup or mentions of users."""
    return SPECIAL.sub(r"\\\1", fit(str(text), COLUMNS)).replace("@", "&#64;")


def part(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield a part under its title; nothing if it is empty."""
    found = list(lines)
    if found:
        yield from ("", f"### {title}", "", *found)


def _lines(result: ResultView) -> Iterator[str]:
    finished = result if isinstance(result, RunJson) else None
    yield from (f"## pytest-dsocr: {result.ended_as}", "")
    if result.verdict != result.ended_as:
        yield from (cell(result.verdict), "")
    for one in finished.causes if finished else ():
        if one.cases:
            first, *others = one.lines
            yield from (f"**{label(one)}** {cell(first)}", "")
            yield from map(cell, others)
            yield from [""] * bool(others)
    when = f"{result.started} to {result.ended or 'its refusal'}, {result.id}"
    sides = [*_run(finished)] if finished else []
    yield from table(("", ""), [*sides, ("commit", result.commit or "unknown"), ("run", when)])
    tests = [] if finished is None else [test.rerun or "" for _, test in by_first(finished.causes, finished.tests)]
    if finished:
        yield from _parts(finished)
    again = (f"    {plain(command)}" for command in (*tests[:MOST], result.command))
    yield from part("To run again", again)


def _parts(result: RunJson) -> Iterator[str]:
    yield from part("What is wrong", table(OF_CAUSES, [*_wrong(result)]))
    yield from part("Stages", table(("page", "stages"), [*_stages(result)]))
    losses = ("loss", "mean", "interval", "allowed", "the most", "on")
    yield from part("Lost to fewer bits", table(losses, [*_lost(result)]))
    yield from part("Slower", table(("stage", "baseline", "this run", "ratio", "interval"), [*_slower(result)]))
    yield from part("Missing", table(("what", "tests", "why"), [*_missing(result)]))


def _run(result: RunJson) -> Iterator[tuple[str, str]]:
    if result.run:
        yield "subject", words.subject_in_words(result.run)
        yield "reference", words.reference_in_words(result.run)
    found = words.counts(result.counts) or "none"
    yield "comparisons", f"{result.comparisons} in {count(len(result.cases), 'case')}: {found}"
    if first_token := words.first_token_in_words(result.cases):
        yield "first token", first_token


def _stages(result: RunJson) -> Iterator[tuple[str, str]]:
    """Yield the stages of wrong cases, and what the mark of a carried error means."""
    shown = [(name, line) for name, line, is_wrong in strips(result.cases, MOST_STRIPS) if is_wrong]
    yield from shown
    if any(CARRIED[0] in line for _, line in shown):
        yield CARRIED


def _wrong(result: RunJson) -> Iterator[tuple[str, ...]]:
    """Yield a row for each cause: the test to read, its ending and finding, the reason, and the other tests."""
    for one, test in by_first(result.causes, result.tests):
        why = one.said if one.why != test.why else ""
        yield "".join(function_of(test.nodeid)), test.ended_as, test.why, why, also_failed(one, NAMED)


def _lost(result: RunJson) -> Iterator[tuple[str, ...]]:
    """Yield a row for each loss, if a budget is set."""
    for one in result.budget.lost if result.budget else ():
        interval = " to ".join(map(two_digits, one.interval or ()))
        allowed = "no limit" if one.allowed is None else two_digits(one.allowed)
        yield one.name, two_digits(one.mean), interval, allowed, two_digits(one.worst), one.where


def _slower(result: RunJson) -> Iterator[tuple[str, ...]]:
    for one in rows(result.perf) if result.perf else ():
        if one.pace == "SLOWER":
            yield one.quantity, one.baseline, one.median, one.ratio, one.interval


def _missing(result: RunJson) -> Iterator[tuple[str, str, str]]:
    for one in result.missing:
        yield one.what + (" (allowed)" if one.allowed else ""), str(one.tests), one.why
    if left := result.counts[Verdict.NOT_COMPARED]:
        yield "comparisons", str(left), "not made; see the cases in index.html"


# A change of the vendor's files, for a terminal and for the issue that a job opens.

ANEW = "dsocr vendor record FOLDER PAGES"


def change_lines(change: VendorChange) -> Iterator[str]:
    """Yield a change of the vendor's files for a terminal."""
    yield from entry("vendor", str(change.folder))
    yield from entry("files", _files(change))
    for drift in change.drifted:
        head, *changes = drift.lines
        yield from entry("drifted", head)
        yield from (f"{'':<16}{one.strip()}" for one in changes)
    for suite, anchors in change.suites.items():
        yield from entry(f"suite {suite}", f"{count(len(anchors), 'anchor')}: {listed(anchors)}")
    for one in change.stale:
        yield from entry("stale", f"{relative_path(str(one.path))}: made from another {', '.join(one.files)}")
    yield from entry("recordings", f"{len(change.stale)} stale, {len(change.current)} of these files")
    yield from entry("next", next_of(change))


def change_markdown(change: VendorChange) -> str:
    """Return a change of the vendor's files as the text of an issue."""
    title = f"## The vendor's files {'have not changed' if change.is_none else 'have changed'}"
    return "\n".join((title, "", *(f"    {line}" for line in change_lines(change)))) + "\n"


def next_of(change: VendorChange) -> str:
    """Return what to do after a change of the vendor's files."""
    if change.is_none:
        return "nothing to do: recordings and suites match these files"
    read = "read the drifted code, and fix the code that depends on it; " if change.drifted else ""
    again = f"record again: {ANEW}; " if change.stale else ""
    return f"{read}{again}then write the anchors: dsocr vendor inspect FOLDER --write"


def _files(change: VendorChange) -> str:
    if not change.files:
        return f"all match {relative_path(str(change.anchors))}"
    how = "" if change.drifted else ", in comments or layout alone"
    return f"different from {relative_path(str(change.anchors))}{how}: {', '.join(change.files)}"


TEMPLATE = "index.html.j2"
VIEWS = {
    "both": "side by side",
    "reference": "reference",
    "subject": "subject",
    "blink": "blink between both",
}
"""Ways to show the two halves of a case's picture; the arrow keys change between them."""


@cache
def shared_templates(*folders: Path) -> Environment:
    """Return the templates in some folders, with those that all pages share, and the filter ``of`` for counts."""
    environment = templates(*folders, Path(__file__).parent)
    environment.filters["of"] = count
    return environment


def html(result: RunJson) -> str:
    """Return the HTML page; everything from the result is escaped."""
    from pytest_dsocr.compare.diff import DiffSide  # brings rapidfuzz, which a run that compares nothing does not need

    environment = shared_templates()
    environment.filters |= {"in_words": words.counts, "error": _error, "short": short}
    environment.filters |= {"where": where_broke, "label": label, "others_failed": others_failed}
    environment.filters |= {"two": two_digits, "share": _share, "boxes": boxes_of, "short_error": short_error}
    run = result.run
    environment.filters |= {"plot": partial(plot_of, run=run), "heat": heat_of}
    to_read = [one.cases[0] for one in result.causes if one.cases]
    ordered = sorted(result.cases, key=lambda case: (case.passes, case.id not in to_read, case.place))
    sides = (words.reference_in_words(run), words.subject_in_words(run)) if run else None
    return environment.get_template(TEMPLATE).render(
        result=result,
        sides=sides,
        times=[*rows(result.perf)] if result.perf else [],
        not_offered=Reason.NOT_OFFERED,
        tag_of={DiffSide.REFERENCE: "del", DiffSide.SUBJECT: "ins"},
        by_engine=words.BY_ENGINE,
        tests={test.nodeid: test for test in result.tests},
        ordered=ordered,
        opened=to_read or [case.id for case in ordered[:1]],
        most_strips=MOST_STRIPS,
        legend=LEGEND,
        views=VIEWS,
        first_wrong=words.first_wrong,
    )


def _share(value: Number, of: Iterable[Number]) -> float:
    """Return a value in per cent of the largest, for the width of a bar."""
    largest = max(map(number, of), default=0.0)
    share = 100 * number(value) / largest if 0 < largest < math.inf else 0.0
    return min(max(share, 0.0), 100.0)


def _error(value: float | str | None) -> str:
    return f"{value:.1e}" if isinstance(value, float | int) else value or ""
