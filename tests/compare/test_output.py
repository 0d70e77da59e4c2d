"""Text, spans, boxes, Markdown and files of two outputs, and what a tie excuses of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.output import Tie, compare_artefacts, compare_output
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.reference_result import Artefact, Output
from tests.compare.made import OUTPUT, reading, shown

NAMES = ["text", "spans", "boxes", "result.mmd", "artefacts"]
EXACT = tolerances("float32")
LOOSE = EXACT.but({"boxes": 1, "coords": 0.02, "text": 0.1})
TITLE, IMAGE = OUTPUT.spans
NOTHING = Output("", (), "", {})


def compared(tie: Tie | None = None, limits: Tolerances = EXACT, **changes: Any) -> dict[str, Comparison]:
    found = list(compare_output(replace(reading(OUTPUT), **changes), OUTPUT, limits, tie))
    parts = tie is not None and changes.get("text", OUTPUT.text) != OUTPUT.text
    assert [comparison.what for comparison in found] == ["read"] * parts + NAMES
    return {comparison.what: comparison for comparison in found}


def those(found: dict[str, Comparison], verdict: Verdict) -> set[str]:
    return {name for name, one in found.items() if one.verdict is verdict}


def test_what_is_said_of_outputs(snapshot: SnapshotAssertion) -> None:
    changes: dict[str, Any] = {
        "text": "x" * 99,
        "spans": (),
        "artefacts": {**OUTPUT.artefacts, "images/0.jpg": Artefact(1)},
    }
    found = {
        "equal": compared(),
        "other": compared(**changes),
        "after a tie": compared(Tie(3, replace(OUTPUT, **changes), sure=False), **changes),
        "not what its steps give": compared(Tie(3, OUTPUT, sure=False), **changes),
        "steps that go astray": compared(Tie(3, replace(OUTPUT, **changes), sure=True), **changes),
    }
    assert {name: [shown(one) for one in these.values()] for name, these in found.items()} == snapshot


def test_what_neither_side_has_or_the_subject_does_not_write_is_not_compared() -> None:
    found = {one.what: one for one in compare_output(reading(NOTHING), NOTHING, EXACT, Tie(3, NOTHING, sure=True))}
    assert found["spans"].reason is found["boxes"].reason is Reason.NEITHER
    assert those(found, Verdict.MATCH) == {"text", "result.mmd", "artefacts"}
    left = compared(mmd=None, artefacts=None)
    assert left["result.mmd"].reason is left["artefacts"].reason is Reason.NOT_OFFERED
    assert compared(mmd="", artefacts={})["result.mmd"].verdict is Verdict.WRONG


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "text": ({"text": OUTPUT.text + "."}, {"text"}),
    "mmd": ({"mmd": "# Minutes"}, {"result.mmd"}),
    "no spans": ({"spans": ()}, {"spans", "boxes"}),
    "another label": ({"spans": (TITLE._replace(label="text"), IMAGE)}, {"spans", "boxes"}),
    "a box less": ({"spans": (TITLE, IMAGE._replace(boxes=IMAGE.boxes[:1]))}, {"boxes"}),
    "a coordinate": ({"spans": (TITLE._replace(boxes=(Box(1, 2, 3, 5),)), IMAGE)}, {"boxes"}),
    "no files": ({"artefacts": {}}, {"artefacts"}),
}


@pytest.mark.parametrize(("changes", "wrong"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_wrong_where_it_shows_and_follows_a_tie_only_where_its_steps_give_it(
    changes: Any, wrong: set[str]
) -> None:
    alone = compared(**changes)
    assert those(alone, Verdict.WRONG) == wrong
    if "text" not in changes:  # of a text that is the reference's no tie excuses the rest
        assert compared(Tie(4, replace(OUTPUT, text="other", **changes), sure=False), **changes) == alone
    changes = {"text": OUTPUT.text + ".", **changes}
    after = compared(Tie(4, replace(OUTPUT, **changes), sure=False), **changes)
    assert those(after, Verdict.TIE_FLIP) == {"text", *wrong}
    assert not those(after, Verdict.WRONG)
    otherwise = compared(Tie(4, replace(OUTPUT, text="other"), sure=False), **changes)
    assert those(otherwise, Verdict.WRONG) == {"read", "text", *wrong}


# Files.

MOVED, COUNT = EXACT.but({"coords": 0.02}), EXACT.but({"boxes": 1})
ANYWHERE = COUNT.but({"coords": 1.0})
MATCH, DRIFT, WRONG = Verdict.MATCH, Verdict.DRIFT, Verdict.WRONG
FIRST, SECOND, THIRD, OF_PAGE = "images/0.jpg", "images/1.jpg", "images/2.jpg", "images/page_1_0.jpg"
FILES = {
    "result.mmd": Artefact(10),
    "result_with_boxes.jpg": Artefact(99_000, (1000, 1500)),
    FIRST: Artefact(812, (300, 200)),
    SECOND: Artefact(500, (100, 100)),
    "result_with_boxes_1.jpg": Artefact(99_000, (2000, 1500)),
    OF_PAGE: Artefact(812, (300, 200)),
}
PLAIN, SMALL = {"notes.txt": Artefact(7)}, Artefact(1, (1, 1))
WRITTEN: dict[str, tuple[Mapping[str, Artefact | None], Tolerances, Verdict]] = {
    "equal": ({}, EXACT, MATCH),
    "other bytes": ({FIRST: Artefact(813, (300, 200))}, EXACT, WRONG),
    "other bytes of a box that may have moved": ({FIRST: Artefact(813, (300, 200))}, MOVED, DRIFT),
    "as wide as both ends may have moved it": ({FIRST: Artefact(812, (341, 200))}, MOVED, DRIFT),
    "wider": ({FIRST: Artefact(812, (342, 200))}, MOVED, WRONG),
    "as high": ({FIRST: Artefact(812, (300, 139))}, MOVED, DRIFT),
    "lower": ({FIRST: Artefact(812, (300, 138))}, MOVED, WRONG),
    "as wide as its own page allows": ({OF_PAGE: Artefact(812, (381, 200))}, MOVED, DRIFT),
    "wider than that": ({OF_PAGE: Artefact(812, (382, 200))}, MOVED, WRONG),
    "other colours": ({"result_with_boxes_1.jpg": Artefact(98_000, (2000, 1500))}, EXACT, MATCH),
    "no picture": ({FIRST: Artefact(812)}, MOVED, WRONG),
    "a figure less": ({SECOND: None}, MOVED, WRONG),
    "a figure less that may be": ({SECOND: None}, COUNT, DRIFT),
    "a figure more that may be": ({THIRD: SMALL}, COUNT, DRIFT),
    "two more": ({THIRD: SMALL, "images/3.jpg": SMALL}, COUNT, WRONG),
    "another in its place": ({SECOND: None, THIRD: FILES[SECOND]}, ANYWHERE, WRONG),
    "no Markdown": ({"result.mmd": None}, ANYWHERE, WRONG),
    "no page with boxes": ({"result_with_boxes.jpg": None}, ANYWHERE, WRONG),
    "a file of ours": ({"info.json": Artefact(5)}, EXACT, MATCH),
    "no figure, of other bytes": ({"notes.txt": Artefact(8)}, MOVED, WRONG),
    "a page of unknown size": ({"result_with_boxes.jpg": None, FIRST: Artefact(9, (302, 200))}, ANYWHERE, WRONG),
}


@pytest.mark.parametrize(("changes", "limits", "verdict"), WRITTEN.values(), ids=WRITTEN)
def test_files(changes: Mapping[str, Artefact | None], limits: Tolerances, verdict: Verdict) -> None:
    actual = {name: file for name, file in {**FILES, **PLAIN, **changes}.items() if file is not None}
    assert compare_artefacts(actual, {**FILES, **PLAIN}, limits).verdict is verdict


def test_five_files_are_named_at_most() -> None:
    many = {f"images/{k}.jpg": Artefact(1) for k in range(9)}
    assert len(compare_artefacts(many, {}, EXACT).details) == 5
