"""What two results differ in, for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_dsocr.compare.diff import Side, diff
from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, listed, told
from pytest_dsocr.report.difference import Change, Difference, Result, Status
from pytest_dsocr.report.markdown import cell, part, table

MOST, MOST_BOXES = 20, 5
SIDES = (Side.REFERENCE, Side.SUBJECT)
"""Whose part in a diff of texts is the old one's, and whose the new one's."""
IN_WORDS: Mapping[Status, str] = {
    Status.NOTHING_WORSE: "nothing is worse",
    Status.WRONG: "something became wrong",
    Status.SLOWER: "something became slower",
    Status.NOT_COMPARABLE: "not comparable, or not in all",
}


class Reading(NamedTuple):
    """What a case was read as in both results, where that differs."""

    case: str
    what: str
    old: str
    new: str


def lines(found: Difference, old: Result, new: Result) -> Iterator[str]:
    """Yield the difference for the terminal."""
    for name, one in (("old", old), ("new", new)):
        yield from told(name, _which(one))
    for obstacle in found.obstacles:
        yield from told("obstacle", obstacle)
    for title, changes in _parts(found):
        for change in changes[:MOST]:
            now, was = change.after or "nothing", change.before or "nothing"
            yield from told(title, f"{_named(change)}: {now}; before: {was}")
        if len(changes) > MOST:
            yield from told("", f"and {len(changes) - MOST} more")
    for reading in readings(old, new)[:MOST]:
        yield from told("reads", f"{reading.case}, {reading.what}: {reading.old}; now: {reading.new}")
    if found.untold:
        yield from told("times", found.untold)
    yield from told("verdict", verdict(found))


def markdown(found: Difference, old: Result, new: Result) -> str:
    """Give the difference for a comment or a job's summary."""
    return "\n".join(_markdown(found, old, new)) + "\n"


def verdict(found: Difference) -> str:
    """Give the difference in one line."""
    numbers = [f"{len(changes)} {title}" for title, changes in _parts(found) if changes]
    return f"{IN_WORDS[found.status]}: {', '.join([*numbers, count(found.common, 'comparison') + ' in common'])}"


def readings(old: Result, new: Result) -> Sequence[Reading]:
    """Give the texts and boxes that differ between both results, of the cases of which both hold them."""
    before = {case["id"]: case.get("said") for case in old["cases"]}
    both = [(case["id"], before.get(case["id"]), case.get("said")) for case in new["cases"]]
    return [reading for case, was, now in both if was and now for reading in _differing(case, was, now)]


def _differing(case: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Reading]:
    for line in diff(new["text"], old["text"])[:1]:
        was, now = ("".join(piece.text for piece in line if piece.side in (Side.BOTH, side)) for side in SIDES)
        yield Reading(case, "text", was, now)
    was, now = old["boxes"], new["boxes"]
    if was != now:
        gone, come = [box for box in was if box not in now], [box for box in now if box not in was]
        yield Reading(case, f"boxes, {len(was)} and {len(now)}", _boxes(gone), _boxes(come))


def _boxes(found: Sequence[Sequence[Any]]) -> str:
    return listed([f"{label} {list(where)}" for label, *where in found], MOST_BOXES) or "no other"


def _parts(found: Difference) -> tuple[tuple[str, Sequence[Change]], ...]:
    return (
        ("became wrong", found.became_wrong),
        ("slower", found.slower),
        ("not compared", found.left),
        ("became right", found.became_right),
        ("faster", found.faster),
        ("newly compared", found.new),
    )


def _named(change: Change) -> str:
    return f"{change.case}, {change.what}" if change.case else change.what


def _which(result: Result) -> str:
    commit = (result["commit"] or "unknown")[:HASH_CHARACTERS]
    subject = result["run"]["subject"] if result["run"] else "no subject"
    return f"{subject}, {result['started']}, commit {commit}: {result['verdict']}"


def _markdown(found: Difference, old: Result, new: Result) -> Iterator[str]:
    yield "## DeepSeek-OCR: the difference of two runs"
    yield ""
    yield cell(verdict(found))
    yield ""
    yield from table(("", ""), [("old", _which(old)), ("new", _which(new))])
    yield from part("Not comparable", (f"- {cell(one)}" for one in found.obstacles))
    for title, changes in _parts(found):
        yield from part(title.capitalize(), table(("case", "what", "before", "after"), changes))
    yield from part("Read differently", table(("case", "what", "old", "new"), readings(old, new)))
    yield from part("Times", (cell(one) for one in (found.untold,) if one))
