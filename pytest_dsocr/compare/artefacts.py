"""Compare the files written: their names, and the bytes and sizes of the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.artifacts import GEOMETRY, MMD, OURS, OVERLAY
from pytest_dsocr.foundation.words import count
from pytest_dsocr.observation.observation import Artefact

NOT_EXACT = (MMD, OVERLAY)
"""Files whose sizes are not compared: one is compared by content, the other has random colours."""
ONE_SIDED = {OURS, GEOMETRY}
"""Files that only one side need write: ours alone, and a picture that only the vendor's matplotlib draws."""
SHOWN_FILES = 5

Files = Mapping[str, Artefact]


def compare_artefacts(mine: Files, theirs: Files, limits: Tolerances) -> Comparison:
    """Compare two folders of files.

    Figures are cut out by their boxes, and DRIFT with them: as many may be missing, or too many, and where none is,
    each side may be as much longer or shorter as both its ends may move.
    """
    own, others = _figures(mine), _figures(theirs)
    names = [set(files) - set(figures) - ONE_SIDED for files, figures in ((mine, own), (theirs, others))]
    if names[0] == names[1] and own == others:
        measured = f"{_count(theirs)} files; {count(len(others), 'figure')} of equal size"
        return Comparison("artefacts", Verdict.MATCH, measured)
    fine = names[0] == names[1] and _drift(own, others, _page_px(theirs), limits)
    measured = f"{_count(mine)} files, {len(own)} figures; the reference has {_count(theirs)}, {len(others)} figures"
    details = tuple(_details(mine, theirs))[:SHOWN_FILES]
    return Comparison("artefacts", Verdict.DRIFT if fine else Verdict.WRONG, measured, None, details)


def _figures(files: Files) -> Files:
    return {name: file for name, file in files.items() if name not in {*NOT_EXACT, *ONE_SIDED}}


def _count(files: Files) -> int:
    return len(set(files) - ONE_SIDED)


def _page_px(files: Files) -> tuple[int, int]:
    return (OVERLAY in files and files[OVERLAY].size_px) or (0, 0)


def _drift(own: Files, others: Files, page_px: tuple[int, int], limits: Tolerances) -> bool:
    if set(own) != set(others):
        return 0 < abs(len(own) - len(others)) <= limits.boxes
    return limits.coords > 0 and all(_close(own[name], others[name], page_px, limits) for name in others)


def _close(mine: Artefact, theirs: Artefact, page_px: tuple[int, int], limits: Tolerances) -> bool:
    if mine.size_px is None or theirs.size_px is None:
        return mine == theirs
    sides = zip(mine.size_px, theirs.size_px, page_px, strict=True)
    return all(abs(a - b) <= 2 * limits.coords * page + 1 for a, b, page in sides)


def _details(mine: Files, theirs: Files) -> Iterator[str]:
    for name in sorted({*mine, *theirs} - ONE_SIDED):
        if name not in theirs:
            yield f"surplus: {name}"
        elif name not in mine:
            yield f"missing: {name}"
        elif name not in NOT_EXACT and mine[name] != theirs[name]:
            yield f"{name}: {_told(mine[name])}; the reference has {_told(theirs[name])}"


def _told(file: Artefact) -> str:
    size = "" if file.size_px is None else f" of {file.size_px[0]} x {file.size_px[1]} px"
    return f"{file.bytes} bytes{size}"
