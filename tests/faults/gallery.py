"""A page of all mistakes: what each is, what is said of it, and the page as it is then read."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

from PIL import Image

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.foundation.process import progress_bar
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.report.pictures import draw
from tests.faults.all import FAULTS
from tests.faults.matrix import known
from tests.faults.outcome import Outcome
from tests.faults.pool import cost, pool
from tests.faults.registry import Fault
from tests.faults.trial import hold, planted

HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Known mistakes</title>
<style>body{{font:15px sans-serif;max-width:60em;margin:2em auto}}img{{max-width:100%}}pre{{white-space:pre-wrap}}
section{{border-top:1px solid #ccc}}nav{{columns:2;font-size:13px}}nav a{{display:block}}</style>
<h1>Known mistakes, planted in the session</h1>
<p>Each is planted alone, and the page {page} is read. Left the page as the vendor's code read it, right as the session
reads it with the mistake in it; above it the first comparison that is wrong, and what the report says to check.</p>
"""
PICTURE_PX = 1000
"""The longest side of a picture: with all mistakes on one page, larger ones would make it slow to open."""


def make_gallery(names: Sequence[str], page: str, out: Path) -> Path:
    """Read a shipped page with each mistake in turn; write ``index.html`` and a picture of each, and give the file.

    The page is written anew with each mistake, so that a run that is ended leaves what it has.
    """
    started = time.monotonic()
    sections: dict[str, str] = {}
    index = out / "index.html"
    out.mkdir(parents=True, exist_ok=True)
    with pool() as processes, progress_bar(total=len(names), unit="mistake") as bar:
        for name, section in zip(names, processes.map(partial(_shown, page=page, out=out), names), strict=True):
            sections[name] = section
            index.write_text(_whole(sections, page), encoding="utf-8")
            bar.update()
    sys.stdout.write(f"{len(sections)} mistakes in {cost(started)}\n")
    return index


def _whole(sections: Mapping[str, str], page: str) -> str:
    """Give the page: by stage, the list of all mistakes and then a section for each."""
    stages = dict.fromkeys(FAULTS[name].stage for name in sections)
    names = [name for stage in stages for name in sections if FAULTS[name].stage == stage]
    links = (f'<a href="#{name}">{FAULTS[name].stage}: {name}, {escape(FAULTS[name].title)}</a>' for name in names)
    listed = "\n".join(links)
    told = "\n".join(sections[name] for name in names)
    return f"{HEAD.format(page=escape(page))}<nav>{listed}</nav>\n{told}</html>\n"


def _shown(name: str, page: str, out: Path) -> str:
    """Read the page with a mistake, draw it where something is wrong with it, and give its section."""
    [path] = [one for one in shipped("dev-20") if one.stem == page]
    with planted(FAULTS[name]) as subject:
        report = hold(subject, make_case(path, "markdown", "gundam"), "read", always_read=True)
    if report.passes:
        return _section(FAULTS[name], _elsewhere(known().get(name)), "")
    found = report.divergence
    told = f"first wrong: {found.first.what}\ncheck: {found.cause}" if found else str(report.fault)
    source = _picture(report, out / name).relative_to(out).as_posix()
    return _section(FAULTS[name], told, f'<img loading="lazy" src="{source}" alt="{escape(FAULTS[name].title)}">')


def _elsewhere(found: Outcome | None) -> str:
    """Say where a mistake is found that this page does not show."""
    if found is None or not found.killed:
        return "nothing is wrong on this page, nor in any other test of a default run"
    return f"nothing is wrong on this page; found by {found.by}, {found.first}\n{found.hint}"


def _picture(report: CaseReport, folder: Path) -> Path:
    picture = draw(report, folder)
    with Image.open(picture) as drawn:
        drawn.thumbnail((PICTURE_PX, PICTURE_PX))
        drawn.save(picture, quality=85)
    return picture


def _section(one: Fault, told: str, picture: str) -> str:
    return (
        f'<section id="{one.id}"><h2>{one.id}: {escape(one.title)}</h2><p>{escape(one.cause)} '
        f"<b>Stage:</b> {one.stage}. <b>Shows as:</b> {escape(one.symptom)}; on {escape(one.page)}.</p>"
        f"<pre>{escape(told)}</pre>{picture}</section>"
    )
