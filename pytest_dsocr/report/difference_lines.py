"""Difference of two results, as lines for a terminal and as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from pytest_dsocr.base.words import HASH_CHARACTERS, count, entry, listed
from pytest_dsocr.compare.diff import DiffSide, diff
from pytest_dsocr.report.case_result import ReadOutput
from pytest_dsocr.report.difference import ChangeKind, DiffStatus, ResultDifference
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.views import cell

MOST, MOST_BOXES = 20, 5
SIDES = (DiffSide.REFERENCE, DiffSide.SUBJECT)
"""Sides of a text diff that show the old and the new result."""
IN_WORDS: Mapping[DiffStatus, str] = {
    DiffStatus.NOTHING_WORSE: "nothing is worse",
    DiffStatus.WRONG: "something became wrong",
    DiffStatus.SLOWER: "something became slower",
    DiffStatus.NOT_COMPARABLE: "not comparable, or only in part",
}

ONLY_NEW = "something is wrong that was not compared before"


def lines(found: ResultDifference, old: RunJson, new: RunJson) -> Iterator[str]:
    """Yield the difference for the terminal."""
    for name, one in (("old", old), ("new", new)):
        yield from entry(name, _which(one))
    for obstacle in found.obstacles:
        yield from entry("obstacle", obstacle)
    for title, changes in found.changes.items():
        for change in changes[:MOST]:
            now, was = change.after or "nothing", change.before or "nothing"
            name = f"{change.case}, {change.what}" if change.case else change.what
            yield from entry(title, f"{name}: {now}; before: {was}")
        if len(changes) > MOST:
            yield from entry("", f"and {len(changes) - MOST} more")
    before = {case.id: case.said for case in old.cases}
    both = [(case.id, before.get(case.id), case.said) for case in new.cases]
    read = chain.from_iterable(_differing(case, was, now) for case, was, now in both if was and now)
    for sentence in islice(read, MOST):
        yield from entry("reads", sentence)
    if found.times_left_out:
        yield from entry("times", found.times_left_out)
    yield from entry("verdict", verdict(found))


def markdown(found: ResultDifference, old: RunJson, new: RunJson) -> str:
    """Return the difference as Markdown for a comment or a job's summary: the lines, indented as code."""
    title = ("## pytest-dsocr: the difference of two runs", "", cell(verdict(found)), "")
    return "\n".join((*title, *(f"    {line}" for line in lines(found, old, new)))) + "\n"


def verdict(found: ResultDifference) -> str:
    """Return the difference in one line."""
    numbers = [f"{len(changes)} {title}" for title, changes in found.changes.items() if changes]
    only_new = found.status is DiffStatus.WRONG and not found.changes[ChangeKind.WRONG]
    numbers.append(f"{count(found.common, 'comparison')} in common")
    return f"{ONLY_NEW if only_new else IN_WORDS[found.status]}: {', '.join(numbers)}"


def _differing(case: str, old: ReadOutput, new: ReadOutput) -> Iterator[str]:
    """Yield the first line of a case's text, and its boxes, where they differ."""
    for line in diff(new.text, old.text)[:1]:
        was, now = ("".join(piece.text for piece in line if piece.side in (DiffSide.BOTH, side)) for side in SIDES)
        yield f"{case}, text: {was}; now: {now}"
    if old.boxes != new.boxes:
        gone = [box for box in old.boxes if box not in new.boxes]
        come = [box for box in new.boxes if box not in old.boxes]
        yield f"{case}, boxes, {len(old.boxes)} and {len(new.boxes)}: {_boxes(gone)}; now: {_boxes(come)}"


def _boxes(found: Sequence[Sequence[Any]]) -> str:
    return listed([f"{label} {list(where)}" for label, *where in found], MOST_BOXES) or "no other"


def _which(result: RunJson) -> str:
    commit = (result.commit or "unknown")[:HASH_CHARACTERS]
    subject = result.run.subject if result.run else "no subject"
    return f"{subject}, {result.started}, commit {commit}: {result.verdict}"
