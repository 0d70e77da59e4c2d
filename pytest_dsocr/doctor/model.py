"""The checkpoint's weights, and the pages."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.doctor.finding import Finding, Level, Wanted
from pytest_dsocr.engine.places import MINI, MINI_IS_FOR
from pytest_dsocr.foundation.words import count
from pytest_dsocr.observation.provenance import SHOWN_OF_CHECKPOINT
from pytest_dsocr.pages.named import make_cases


def weights(wanted: Wanted) -> Iterator[Finding]:
    """Find the checkpoint, and read all of its weights for their hash."""
    from pytest_dsocr.engine.checkpoint import resolve

    found = resolve(wanted.checkpoint)
    where = f" in {found.folder}" if found.folder else ", made of a seed"
    purpose = f"; {MINI_IS_FOR}" if wanted.checkpoint == MINI else ""
    yield Finding("weights", Level.OK, f"{found.label}, SHA-256 {found.sha256[:SHOWN_OF_CHECKPOINT]}{where}{purpose}")


def pages(wanted: Wanted) -> Iterator[Finding]:
    """Open every page as a run would; a PDF's are rendered."""
    cases = make_cases(wanted.pages, ["markdown"], ["gundam"]).readable()
    for bad in cases.bad:
        yield Finding("pages", Level.FAULT, bad.why)
    if cases.good:
        yield Finding("pages", Level.OK, f"{count(len(cases.good), 'page')} can be read: {', '.join(wanted.pages)}")
    elif not cases.bad:
        yield Finding("pages", Level.FAULT, f"{', '.join(wanted.pages)} names no page", "name one with --pages")
