"""The files written: names, and figures that drift with the boxes they are cut out by."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_dsocr.compare.output import compare_artefacts
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation.observation import Artefact

EXACT = tolerances("float32")
MOVED = EXACT.but({"coords": 0.02})
COUNT = EXACT.but({"boxes": 1})
MATCH, DRIFT, WRONG = Verdict.MATCH, Verdict.DRIFT, Verdict.WRONG

FIRST, SECOND, THIRD = "images/0.jpg", "images/1.jpg", "images/2.jpg"
FILES = {
    "result.mmd": Artefact(10),
    "result_with_boxes.jpg": Artefact(99_000, (1000, 1500)),
    FIRST: Artefact(812, (300, 200)),
    SECOND: Artefact(500, (100, 100)),
}


CASES: dict[str, tuple[Mapping[str, Artefact | None], Tolerances, Verdict]] = {
    "equal": ({}, EXACT, MATCH),
    "other bytes": ({FIRST: Artefact(813, (300, 200))}, EXACT, WRONG),
    "other bytes of a box that may have moved": ({FIRST: Artefact(813, (300, 200))}, MOVED, DRIFT),
    "as wide as both ends may have moved it": ({FIRST: Artefact(812, (341, 200))}, MOVED, DRIFT),
    "wider": ({FIRST: Artefact(812, (342, 200))}, MOVED, WRONG),
    "as high": ({FIRST: Artefact(812, (300, 139))}, MOVED, DRIFT),
    "lower": ({FIRST: Artefact(812, (300, 138))}, MOVED, WRONG),
    "no picture": ({FIRST: Artefact(812)}, MOVED, WRONG),
    "a figure less": ({SECOND: None}, MOVED, WRONG),
    "a figure less that may be": ({SECOND: None}, COUNT, DRIFT),
    "a figure more that may be": ({THIRD: Artefact(1, (1, 1))}, COUNT, DRIFT),
    "two more": ({THIRD: Artefact(1, (1, 1)), "images/3.jpg": Artefact(1, (1, 1))}, COUNT, WRONG),
    "another in its place": ({SECOND: None, THIRD: FILES[SECOND]}, COUNT.but({"coords": 1.0}), WRONG),
    "no Markdown": ({"result.mmd": None}, COUNT.but({"coords": 1.0}), WRONG),
    "no page with boxes": ({"result_with_boxes.jpg": None}, COUNT.but({"coords": 1.0}), WRONG),
    "a file of ours": ({"info.json": Artefact(5)}, EXACT, MATCH),
}


@pytest.mark.parametrize(("changes", "limits", "verdict"), CASES.values(), ids=CASES)
def test_files(changes: Mapping[str, Artefact | None], limits: Tolerances, verdict: Verdict) -> None:
    mine = {name: file for name, file in {**FILES, **changes}.items() if file is not None}
    assert compare_artefacts(mine, FILES, limits).verdict is verdict


def test_what_differs_is_named() -> None:
    mine = {**FILES, FIRST: Artefact(1, (3, 4)), THIRD: Artefact(1)}
    del mine[SECOND]
    assert compare_artefacts(mine, FILES, EXACT) == Comparison(
        "artefacts",
        WRONG,
        "4 files, 2 figures; the reference has 4, 2 figures",
        None,
        (
            "images/0.jpg: 1 bytes of 3 x 4 px; the reference has 812 bytes of 300 x 200 px",
            "missing: images/1.jpg",
            "surplus: images/2.jpg",
        ),
    )
    many = {f"images/{k}.jpg": Artefact(1) for k in range(9)}
    assert len(compare_artefacts(many, {}, EXACT).details) == 5


def test_a_file_that_is_no_picture_is_compared_by_its_bytes() -> None:
    theirs = {**FILES, "notes.txt": Artefact(7)}
    moved = {**theirs, FIRST: Artefact(813, (300, 200)), "result.mmd": Artefact(11)}
    found = compare_artefacts(moved, theirs, MOVED)
    assert (found.verdict, len(found.details)) == (DRIFT, 1)
    found = compare_artefacts({**theirs, "notes.txt": Artefact(8)}, theirs, MOVED)
    assert (found.verdict, found.details) == (WRONG, ("notes.txt: 8 bytes; the reference has 7 bytes",))


def test_a_page_of_unknown_size_allows_a_pixel() -> None:
    files = {FIRST: Artefact(812, (300, 200))}
    assert compare_artefacts({FIRST: Artefact(9, (301, 199))}, files, MOVED).verdict is DRIFT
    for limits in (MOVED, EXACT.but({"coords": 1.0})):
        assert compare_artefacts({FIRST: Artefact(9, (302, 200))}, files, limits).verdict is WRONG
        assert compare_artefacts({FIRST: Artefact(9, (300, 202))}, files, limits).verdict is WRONG
