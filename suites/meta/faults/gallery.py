"""A page of all mistakes: what each is, what is said of it, and the page as it is then read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from pytest_dsocr.foundation.progress import progress_bar
from pytest_dsocr.judge.exchange import CaseReport
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.shipped import shipped
from pytest_dsocr.report.pictures import draw
from suites.meta.faults.all import FAULTS
from suites.meta.faults.pool import pool
from suites.meta.faults.registry import Fault
from suites.meta.faults.trial import hold, planted

HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Known mistakes</title>
<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}img{max-width:100%}pre{white-space:pre-wrap}
section{border-top:1px solid #ccc}</style>
<h1>Known mistakes, planted in the session</h1>
<p>Left the page as the vendor's code read it, right as the session reads it with the mistake in it.</p>
"""


def make_gallery(names: Sequence[str], page: str, out: Path) -> Path:
    """Read a shipped page with each mistake in turn; write ``index.html`` and a picture of each, and give the file."""
    sections = []
    with pool() as processes, progress_bar(total=len(names), unit="mistake") as bar:
        for section in processes.map(partial(_shown, page=page, out=out), names):
            sections.append(section)
            bar.update()
    index = out / "index.html"
    index.write_text(HEAD + "\n".join(sections) + "</html>\n", encoding="utf-8")
    return index


def _shown(name: str, page: str, out: Path) -> str:
    """Read the page with a mistake, draw it, and give its section."""
    [path] = [one for one in shipped("dev-20") if one.stem == page]
    case = make_case(path, "markdown", "gundam")
    with planted(FAULTS[name]) as subject:
        report = hold(subject, case, "read", always_read=True)
    return _section(FAULTS[name], report, draw(report, out / name).relative_to(out))


def _section(one: Fault, report: CaseReport, picture: Path) -> str:
    found = report.divergence
    passed = f"nothing is wrong on this page: {report.verdict}"
    told = f"first wrong: {found.first.what}\ncheck: {found.cause}" if found else str(report.fault or passed)
    return (
        f'<section id="{one.id}"><h2>{one.id}: {escape(one.title)}</h2><p>{escape(one.cause)} '
        f"<b>Shows as:</b> {escape(one.symptom)}; on {escape(one.page)}.</p><pre>{escape(told)}</pre>"
        f'<img src="{picture.as_posix()}" alt="{escape(one.title)}"></section>'
    )
