"""A change of the vendor's files in words: for a terminal, and as Markdown for the issue that a job opens."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.foundation.words import count, entry, listed, near
from pytest_dsocr.reference.drift import Change

ANEW = "dsocr vendor record FOLDER PAGES"


def lines_of(change: Change) -> Iterator[str]:
    """Yield it for a terminal."""
    yield from entry("vendor", str(change.folder))
    yield from entry("files", _files(change))
    for drift in change.drifted:
        head, *changes = drift.lines
        yield from entry("drifted", head)
        yield from (f"{'':<16}{one.strip()}" for one in changes)
    for suite, anchors in change.suites.items():
        yield from entry(f"suite {suite}", f"{count(len(anchors), 'anchor')}: {listed(anchors)}")
    for one in change.stale:
        yield from entry("stale", f"{near(str(one.path))}: made from another {', '.join(one.files)}")
    yield from entry("recordings", f"{len(change.stale)} stale, {len(change.current)} of these files")
    yield from entry("next", next_of(change))


def markdown(change: Change) -> str:
    """Give it as the text of an issue."""
    return "\n".join(_markdown(change)) + "\n"


def next_of(change: Change) -> str:
    """Say what to do."""
    if change.is_none:
        return "nothing: recordings and suites are of these files"
    read = "read what drifted, and mend what rests on it; " if change.drifted else ""
    again = f"record anew: {ANEW}; " if change.stale else ""
    return f"{read}{again}then write the anchors down: dsocr vendor inspect FOLDER --write"


def _markdown(change: Change) -> Iterator[str]:
    yield f"## The vendor's files {'have not changed' if change.is_none else 'have changed'}"
    yield from ("", f"Files: {_files(change)}.")
    if change.drifted:
        yield from (
            "",
            f"### {count(len(change.drifted), 'anchor')} drifted",
            "",
            "| anchor | where | suites |",
            "| --- | --- | --- |",
        )
        for drift in change.drifted:
            suites = ", ".join(suite for suite, anchors in change.suites.items() if drift.anchor in anchors)
            yield f"| `{drift.anchor}` | {drift.place} | {suites} |"
    if change.stale:
        yield from ("", f"### {count(len(change.stale), 'recording')} stale", "")
        yield from (f"- `{near(str(one.path))}`: made from another {', '.join(one.files)}" for one in change.stale)
    yield from ("", f"Next: {next_of(change)}.")


def _files(change: Change) -> str:
    if not change.files:
        return f"all are those of {near(str(change.anchors))}"
    how = "" if change.drifted else ", in comments or layout alone"
    return f"not as in {near(str(change.anchors))}{how}: {', '.join(change.files)}"
