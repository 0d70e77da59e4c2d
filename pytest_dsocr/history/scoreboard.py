"""Scoreboard of implementations: one small file for each version, and two tables made from all files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from packaging.version import Version

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import sha256, write_whole
from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import HASH_CHARACTERS, plain
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.models import STAGES as ALL_STAGES
from pytest_dsocr.report import views
from pytest_dsocr.report.comparison_result import number
from pytest_dsocr.report.file import Ending

STAGES = {
    "ids": "input_ids|images_seq_mask",
    "grid": "images_spatial_crop",
    "page's view": "images_ori",
    "crops": "images_crop",
    **{stage.title: rf"{stage.name}\..*" for stage in ALL_STAGES if stage.kind == "view"},
    "fusion": "vision_fusion",
    "prefill": "prefill",
    "steps": "logits|tokens",
    "text": "text|spans|boxes",
}
"""Pattern of the comparisons of each column, without the part after a slash."""


@dataclass(frozen=True)
class ScoreboardEntry:
    """Result of one version of an implementation."""

    name: str
    title: str
    version: str
    date: str
    level: str
    failed: str
    """Failed tests and all that ran, such as ``3 of 185``."""
    stages: Mapping[str, str]
    """Text of :func:`cell` by stage."""
    copied_from: Mapping[str, str] = field(default_factory=dict)
    """Name of the implementation that a stage was copied from, by stage."""

    @property
    def file(self) -> str:
        """Name of its file without a suffix."""
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{self.name}-{self.version}")[:SLUG_CHARACTERS]
        own = sha256(json.dumps([self.name, self.version]).encode())[:HASH_CHARACTERS]  # tells "a b" from "a/b"
        return f"{slug}-{own}"

    @classmethod
    def of(cls, result: Mapping[str, Any], name: str, title: str, version: str) -> ScoreboardEntry:
        """Read a run's ``dsocr.json``; raise ``DsocrError`` if no case was compared."""
        if not (result["run"] or {}).get("level"):
            raise DsocrError(f"the run of {result['started']} gave its subject no case; run the suites again")
        ended = [test["ended_as"] != Ending.PASSES for test in result["tests"] if test["outcome"] != "skipped"]
        compared = [one for test in result["tests"] for one in test["comparisons"]]
        stages = {stage: cell(stage, compared) for stage in STAGES}
        date, level = result["started"].partition("T")[0], result["run"]["level"]
        return cls(plain(name), plain(title), plain(version), date, level, f"{sum(ended)} of {len(ended)}", stages)


SLUG_CHARACTERS = 100
"""Length of a file name before its hash."""
KEPT = Format(ScoreboardEntry, "run that version again, or delete the file")


def cell(stage: str, compared: Iterable[Mapping[str, Any]]) -> str:
    """Return ``.`` for a stage not offered, ``=`` for a right one, else how much is wrong; with the largest error."""
    named = re.compile(rf"({STAGES[stage]})(/.*)?")
    found = [one for one in compared if one["verdict"] != Verdict.NOT_COMPARED and named.fullmatch(one["what"])]
    wrong = sum(one["verdict"] == Verdict.WRONG for one in found)
    error = max(filter(isfinite, (number(one["error"]) for one in found)), default=0.0)
    said = f"x {wrong} of {len(found)}" if wrong else "=" if found else "."
    return f"{said}, {error:.0e}" if error else said


def copied_from(given: Iterable[str]) -> dict[str, str]:
    """Read ``STAGE=NAME``; raise ``DsocrError`` if there is no such stage."""
    found = dict(one.split("=", 1) for one in given if "=" in one)
    if wrong := [one for one in given if one.partition("=")[0] not in STAGES or "=" not in one]:
        raise DsocrError(f"{wrong[0]} is no STAGE=NAME; the stages are {', '.join(STAGES)}")
    return {stage: plain(name) for stage, name in found.items()}


RECEIPTS = "receipts"
"""Folder of the receipts, each under the name of its entry."""
RECEIPT_SUFFIXES = (".md", ".json")


def keep(folder: Path, kept: ScoreboardEntry, result: Path | None = None) -> Path:
    """Write an entry, and the receipt next to its result, over those of the same version.

    Args:
        result: folder or ``dsocr.json`` of the run; its receipt is copied if there is one.

    Raises:
        DsocrError: if a file cannot be written.
    """
    place = result.parent if result and result.suffix == ".json" else result
    for suffix in RECEIPT_SUFFIXES if place else ():
        if place and (receipt := place / f"receipt{suffix}").is_file():
            write_whole(folder / RECEIPTS / f"{kept.file}{suffix}", receipt.read_bytes(), shared=True)
        else:
            (folder / RECEIPTS / f"{kept.file}{suffix}").unlink(missing_ok=True)  # of an earlier run
    return write_whole(folder / f"{kept.file}.json", json.dumps(asdict(kept), indent=1) + "\n", shared=True)


def read(folder: Path) -> list[ScoreboardEntry]:
    """Read all entries in ``folder``, sorted by title and version.

    Raises:
        DsocrError: if there is no such folder, or a file cannot be read.
    """
    if not folder.is_dir():
        raise DsocrError(f"there is no folder {folder}; name another, or create it with --add")
    found = [KEPT.read(path) for path in folder.glob("*.json")]
    return sorted(found, key=lambda kept: (kept.title.lower(), kept.name, *_key(kept.version)))


def _key(version: str) -> tuple[bool, Any]:
    """Return the sort key of a version: 0.7.10 comes after 0.7.9."""
    number = version.rpartition(" ")[2]
    try:
        return True, Version(number)
    except ValueError:  # a commit, or too many digits
        return False, number


def tables(runs: Sequence[ScoreboardEntry]) -> tuple[str, str]:
    """Return the table of runs and the table of stages, as Markdown."""
    head = ("implementation", "command's name", "version", "level", "run on", "tests failed")
    of_run = [(one.title, one.name, one.version, one.level, one.date, one.failed) for one in runs]
    stages = [(one.name, one.version, *(one.stages.get(stage, ".") for stage in STAGES)) for one in runs]
    return _table(head, of_run), _table(("name", "version", *STAGES), stages)


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    cells = (head, ["---"] * len(head), *(map(views.cell, row) for row in rows))
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


END = r"(?:\r?\n|\Z)"


def put_into(page: str, made: Iterable[str]) -> str:
    """Replace the tables in a page by those with the same head; raise ``DsocrError`` if the page lacks one."""
    for table in made:
        head = re.escape(table.partition("\n")[0])
        page, found = re.subn(rf"^{head}{END}(?:\|.*{END})*", table.replace("\\", r"\\"), page, flags=re.MULTILINE)
        if not found:
            raise DsocrError(f"the page has no table with the head {table.splitlines()[0]}; add that line")
    return page
