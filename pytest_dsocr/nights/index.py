"""``index.html`` over all of a night, beside the folders of its parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.files import templates, write_whole
from pytest_dsocr.foundation.words import count
from pytest_dsocr.nights.parts import DOCTOR_JSON, JUNIT, LOG
from pytest_dsocr.nights.state import STATE_NAME, Entry, NightState
from pytest_dsocr.nights.summary import RATED, TIMED, Told, cells_of, cells_of_rate, timed
from pytest_dsocr.report.file import INDEX_NAME, JSON_NAME
from pytest_dsocr.report.words import counts

TEMPLATE = "index.html.j2"
FILES = (INDEX_NAME, JSON_NAME, DOCTOR_JSON, JUNIT, LOG)


def write_index(night: NightState, found: Told, out: Path) -> None:
    """Write the page; raise ``DsocrError`` where the disk does not take it.

    Args:
        night: what is known of it.
        found: what its jobs wrote.
        out: its folder.
    """
    environment = templates(Path(__file__).parent)
    environment.filters |= {"of": count}
    by_process, by_part = timed(found)
    page = environment.get_template(TEMPLATE).render(
        night=night,
        rows=[(entry, _told(result), _files(entry, out)) for entry, result in found],
        timed=[TIMED, *map(cells_of, by_process)] if by_process else [],
        rated=[RATED, *map(cells_of_rate, by_part)] if by_part else [],
        findings=_findings(out),
        config=asdict(night.config),
        state=STATE_NAME,
    )
    write_whole(out / INDEX_NAME, page.encode("utf-8", "replace"))


def _told(result: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a part's result says: how much was compared, and the cases that are not right."""
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
