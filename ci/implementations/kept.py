"""What is kept of a row's run, small enough for the repository, and the tables that are made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ci.implementations.rows import ROWS, Row
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.report.payload import number

DOCS = Path(__file__).parents[2] / "docs"
PAGE, KEPT = DOCS / "implementations.md", DOCS / "implementations"
BEGIN, END = "<!-- made by python -m ci.implementations --page -->", "<!-- made so far -->"
STAGES: Mapping[str, tuple[str, ...]] = {
    "ids": ("input_ids", "images_seq_mask"),
    "grid": ("images_spatial_crop",),
    "page's view": ("images_ori",),
    "crops": ("images_crop",),
    "SAM": ("sam.",),
    "CLIP": ("clip.",),
    "projector": ("projector.",),
    "fusion": ("vision_fusion",),
    "prefill": ("prefill",),
    "steps": ("logits", "tokens"),
    "text": ("text", "spans", "boxes"),
}
"""What a comparison of each stage is called, or begins with."""
NOT_MADE, NOTHING_KEPT = "NOT-COMPARED", "no run kept"


@dataclass(frozen=True)
class Stage:
    """What the comparisons of a stage found."""

    made: int
    wrong: int
    error: float
    """The largest relative error; 0 where all are equal, or no numbers."""

    @property
    def cell(self) -> str:
        """How it stands in the table."""
        if not self.made:
            return "."
        said = f"x {self.wrong} of {self.made}" if self.wrong else "="
        return f"{said}, {self.error:.0e}" if self.error else said


@dataclass(frozen=True)
class Kept:
    """A run, as the table shows it."""

    version: str
    level: str
    date: str
    tests: int
    """Those that ran."""
    failed: int
    stages: Mapping[str, Stage]


def keep(name: str, row: Row, result: Path) -> Path:
    """Keep what a run's ``dsocr.json`` says; give the file.

    Raises:
        DsocrError: where the run did not come to its end.
    """
    found = json.loads(result.read_text(encoding="utf-8"))
    if found["status"] != "finished":
        raise DsocrError(f"{result} is of a run that did not come to its end; run it again")
    ended = [test["ended_as"] != "passes" for test in found["tests"] if test["outcome"] != "skipped"]
    compared = [one for test in found["tests"] for one in test["comparisons"] if one["verdict"] != NOT_MADE]
    stages = {name: _stage(_of_stage(compared, begins)) for name, begins in STAGES.items()}
    date = found["started"].partition("T")[0]
    kept = Kept(row.version, found["run"]["level"], date, len(ended), sum(ended), stages)
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{name}.json"
    path.write_text(json.dumps(asdict(kept), indent=2) + "\n", encoding="utf-8")
    return path


def read_kept(name: str) -> Kept | None:
    """Give what is kept of a row's run, if anything is."""
    path = KEPT / f"{name}.json"
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return Kept(**{**found, "stages": {stage: Stage(**told) for stage, told in found["stages"].items()}})


def page_of(text: str) -> str:
    """Give the page with its tables made of what is kept."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([f"{before}{BEGIN}", *_tables(), f"{END}{after}"])


def _tables() -> Iterator[str]:
    rows = {name: read_kept(name) for name in ROWS}
    head = ["implementation", "command's name", "version", "level", "run on", "tests failed"]
    yield from _table(head, ([ROWS[name].title, f"`{name}`", *_of_run(name, kept)] for name, kept in rows.items()))
    yield ""
    stages = ([f"`{name}`", *(kept.stages[one].cell for one in STAGES)] for name, kept in rows.items() if kept)
    yield from _table(["name", *STAGES], stages)


def _of_run(name: str, kept: Kept | None) -> list[str]:
    if kept is None:
        return [ROWS[name].version, NOTHING_KEPT, "", ""]
    return [kept.version, kept.level, kept.date, f"{kept.failed} of {kept.tests}"]


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"


def _of_stage(compared: Iterable[Mapping[str, Any]], begins: tuple[str, ...]) -> list[Mapping[str, Any]]:
    return [one for one in compared if any(_is_of(one["what"], begin) for begin in begins)]


def _is_of(what: str, begin: str) -> bool:
    return what.startswith(begin) if begin.endswith(".") else what.partition("/")[0] == begin


def _stage(compared: list[Mapping[str, Any]]) -> Stage:
    errors = [number(one["error"]) for one in compared]
    wrong = sum(one["verdict"] == "WRONG" for one in compared)
    return Stage(len(compared), wrong, max(filter(isfinite, errors), default=0.0))
