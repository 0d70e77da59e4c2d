"""``index.html`` over all of a night, beside the folders of its parts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ci.nightly.parts import DOCTOR_JSON, JUNIT, LOG
from ci.nightly.state import STATE_NAME, Entry, Night
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.sealed import write_whole
from pytest_dsocr.foundation.templates import templates
from pytest_dsocr.foundation.words import count
from pytest_dsocr.report.file import INDEX_NAME, JSON_NAME, read_result
from pytest_dsocr.report.words import counts

TEMPLATE = "index.html.j2"
FILES = (INDEX_NAME, JSON_NAME, DOCTOR_JSON, JUNIT, LOG)


def write_index(night: Night, out: Path) -> None:
    """Write the page; raise ``DsocrError`` where the disk does not take it."""
    environment = templates(Path(__file__).parent)
    environment.filters |= {"of": count}
    page = environment.get_template(TEMPLATE).render(
        night=night,
        rows=[(entry, _told(entry, out), _files(entry, out)) for entry in night.entries],
        findings=_findings(out),
        config=asdict(night.config),
        state=STATE_NAME,
    )
    write_whole(out / INDEX_NAME, page.encode("utf-8", "replace"))


def _told(entry: Entry, out: Path) -> dict[str, Any]:
    """Give what a part's result says: how much was compared, and the cases that are not right."""
    try:
        result = read_result(out / entry.name) if entry.ended else {}
    except DsocrError:
        result = {}
    wrong = [case["id"] for case in result.get("cases", ()) if case.get("first_wrong")]
    return {"counts": counts(result.get("counts", {})), "wrong": wrong, "comparisons": result.get("comparisons")}


def _files(entry: Entry, out: Path) -> list[str]:
    return [name for name in FILES if entry.ended and (out / entry.name / name).is_file()]


def _findings(out: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads((out / "doctor" / DOCTOR_JSON).read_text(encoding="utf-8"))["findings"]
    except (OSError, ValueError, KeyError):
        return []
    return found
