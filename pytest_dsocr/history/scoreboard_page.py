"""Page of the scoreboard: a row for each release, a column for each stage, and between which releases a fault came."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.history.scoreboard import RECEIPT_SUFFIXES, RECEIPTS, STAGES, ScoreboardEntry
from pytest_dsocr.report import views
from pytest_dsocr.report.strip import MARKS

LOOKS = {
    character: (str(verdict), MARKS[verdict][0])
    for character, verdict in {"=": Verdict.MATCH, "x": Verdict.WRONG, ".": Verdict.NOT_COMPARED}.items()
}
"""Verdict and sign of a cell by its first character."""
TEMPLATE = "scoreboard.html.j2"


class StageCell(NamedTuple):
    """A stage of one release on the page."""

    verdict: str
    mark: str
    text: str
    """Number of wrong comparisons, and the largest error."""
    is_first: bool
    """Whether it is the release's first wrong stage."""
    has_changed: bool
    """Whether it was right or wrong otherwise in the release before."""


class StageFault(NamedTuple):
    """Releases in a row in which a stage is wrong."""

    title: str
    stage: str
    wrong: str
    """Cell of its last release."""
    first: str
    """The first release that was run with it."""
    before: str
    """The release before it, if that is right."""
    fixed: str
    """The release after it, if that is right."""
    copied_from: str
    receipt: str
    """Path of the receipt of its last release; empty without one."""


def faults_of(runs: Sequence[ScoreboardEntry], receipts: Mapping[str, str]) -> Iterator[StageFault]:
    """Yield the faults of each implementation by stage, with the releases between which each came and went.

    Args:
        runs: entries, those of one implementation in a row and in the order of their releases.
        receipts: paths of receipts by the entry's file.
    """
    for title, group in groupby(runs, key=lambda one: one.title):
        releases = [*group]
        for stage in STAGES:
            found = [(one, one.stages.get(stage, ".")) for one in releases]
            spells = [[*spell] for _, spell in groupby(found, key=lambda pair: pair[1][0])]
            for before, spell, after in zip([[], *spells], spells, [*spells[1:], []], strict=False):
                (first, _), (last, text) = spell[0], spell[-1]
                if text[0] == "x":
                    ends = [
                        "".join(one.version for one, cell in near if cell[0] == "=")
                        for near in (before[-1:], after[:1])
                    ]
                    copied, receipt = last.copied_from.get(stage, ""), receipts.get(last.file, "")
                    yield StageFault(title, stage, text[1:].strip(), first.version, ends[0], ends[1], copied, receipt)


def html(runs: Sequence[ScoreboardEntry], folder: Path, page: Path) -> str:
    """Render a page with a row for each release, a column for each stage, and the faults; every value is escaped.

    Receipts in the entries' ``folder`` are linked relative to the file of the ``page``.
    """
    found = {one.file: folder / RECEIPTS / f"{one.file}{RECEIPT_SUFFIXES[0]}" for one in runs}
    receipts = {name: os.path.relpath(path, page.parent) for name, path in found.items() if path.is_file()}
    boards: dict[str, list[tuple[ScoreboardEntry, list[StageCell]]]] = {}
    for one in runs:
        rows = boards.setdefault(one.title, [])
        rows.append((one, _cells(one, rows[-1][0] if rows else None)))
    faults = [*faults_of(runs, receipts)]
    environment = views.shared_templates(Path(__file__).parent)
    template = environment.get_template(TEMPLATE)
    return template.render(boards=boards, runs=runs, stages=[*STAGES], receipts=receipts, faults=faults)


def _cells(one: ScoreboardEntry, before: ScoreboardEntry | None) -> list[StageCell]:
    said = [one.stages.get(stage, ".") for stage in STAGES]
    first = next((k for k, text in enumerate(said) if text[0] == "x"), None)
    then = [before.stages.get(stage, ".") if before else text for stage, text in zip(STAGES, said, strict=True)]
    return [
        StageCell(*LOOKS[text[0]], text[1:].lstrip(", "), k == first, text[0] != of_before[0])
        for k, (text, of_before) in enumerate(zip(said, then, strict=True))
    ]
