"""Text, spans, boxes, Markdown and files of two outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.compare.output import compare_output
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation import Artefact, Output, SpanSeen
from suites.meta.compare.made import OUTPUT

NAMES = ["text", "spans", "boxes", "result.mmd", "artefacts"]
TITLE, IMAGE = OUTPUT.spans
FIGURE = OUTPUT.artefacts["images/0.jpg"]


def compared(tie_at: int | None = None, **changes: Any) -> dict[str, Comparison]:
    found = list(compare_output(replace(OUTPUT, **changes), OUTPUT, tie_at))
    assert [comparison.what for comparison in found] == NAMES
    return {comparison.what: comparison for comparison in found}


def test_equal_outputs_match_and_say_how_much_was_compared() -> None:
    assert {name: (found.verdict, found.measured) for name, found in compared().items()} == {
        "text": ("MATCH", "57 characters"),
        "spans": ("MATCH", "2, labels in order"),
        "boxes": ("MATCH", "3, coordinates equal"),
        "result.mmd": ("MATCH", "10 characters"),
        "artefacts": ("MATCH", "3 files; 1 figures of equal size"),
    }


def test_without_spans_on_both_sides_there_is_nothing_to_compare() -> None:
    bare = Output("", (), "", {})
    found = {one.what: (one.verdict, one.measured) for one in compare_output(bare, bare, None)}
    assert found["spans"] == found["boxes"] == ("NOT-COMPARED", "neither side has any")
    assert found["text"] == found["result.mmd"] == ("MATCH", "0 characters")
    boxless = replace(OUTPUT, spans=(SpanSeen("title", ()),))
    assert [one.verdict for one in compare_output(boxless, boxless, None)][1:3] == ["MATCH", "NOT-COMPARED"]


def files(**changes: Artefact | None) -> dict[str, Any]:
    """The output's files with some of them changed; None leaves one out."""
    found = {"figure": "images/0.jpg", "mmd": "result.mmd", "overlay": "result_with_boxes.jpg", "info": "info.json"}
    named = {found[name]: artefact for name, artefact in changes.items()}
    return {"artefacts": {k: v for k, v in {**OUTPUT.artefacts, **named}.items() if v is not None}}


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "text": ({"text": OUTPUT.text + "."}, {"text"}),
    "mmd": ({"mmd": "# Minutes"}, {"result.mmd"}),
    "no spans": ({"spans": ()}, {"spans", "boxes"}),
    "a span less": ({"spans": (TITLE,)}, {"spans", "boxes"}),
    "spans in another order": ({"spans": (IMAGE, TITLE)}, {"spans", "boxes"}),
    "another label": ({"spans": (TITLE._replace(label="text"), IMAGE)}, {"spans", "boxes"}),
    "a box less": ({"spans": (TITLE, IMAGE._replace(boxes=IMAGE.boxes[:1]))}, {"boxes"}),
    "boxes in another order": ({"spans": (TITLE, IMAGE._replace(boxes=IMAGE.boxes[::-1]))}, {"boxes"}),
    "a coordinate": ({"spans": (TITLE._replace(boxes=(Box(1, 2, 3, 5),)), IMAGE)}, {"boxes"}),
    "no files": ({"artefacts": {}}, {"artefacts"}),
    "a file missing": (files(mmd=None), {"artefacts"}),
    "a file too many": ({"artefacts": {**OUTPUT.artefacts, "geo.jpg": FIGURE}}, {"artefacts"}),
    "a figure of other bytes": (files(figure=Artefact(813, (30, 20))), {"artefacts"}),
    "a figure of other size": (files(figure=Artefact(812, (20, 30))), {"artefacts"}),
    "overlay, mmd and info of other bytes": (
        files(mmd=Artefact(1), overlay=Artefact(2, (3, 4)), info=Artefact(5)),
        set(),
    ),
    "without our own file": (files(info=None), set()),
}


@pytest.mark.parametrize(("changes", "wrong"), CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("tie_at", [None, 4])
def test_a_change_is_wrong_where_it_shows_or_follows_a_tie(changes: Any, wrong: set[str], tie_at: int | None) -> None:
    found = compared(tie_at, **changes)
    verdict = Verdict.WRONG if tie_at is None else Verdict.TIE_FLIP
    assert {name: one.verdict for name, one in found.items()} == {
        name: verdict if name in wrong else Verdict.MATCH for name in NAMES
    }


def test_a_file_of_ours_may_be_missing_from_the_reference() -> None:
    vendors = replace(OUTPUT, **files(info=None))
    assert [one.verdict for one in compare_output(OUTPUT, vendors, None)][-1] is Verdict.MATCH


def test_a_tie_changes_wrong_verdicts_and_keeps_what_was_measured() -> None:
    changes: dict[str, Any] = {"text": "x" + OUTPUT.text, "spans": ()}
    plain, tied = compared(**changes), compared(3, **changes)
    assert tied["text"].measured == f"follows the tie at step 3: {plain['text'].measured}"
    assert tied["text"].details == plain["text"].details != ()
    assert tied["text"].error is None
    assert tied["result.mmd"] == plain["result.mmd"]
    nothing = compare_output(Output("", (), "", {}), Output("", (), "", {}), 3)
    assert [one.verdict for one in nothing] == ["MATCH", "NOT-COMPARED", "NOT-COMPARED", "MATCH", "MATCH"]


@pytest.mark.parametrize(
    ("mine", "theirs", "measured", "details"),
    [
        ("xbc", "abc", "parts at character 0 of 3 (the subject has 3)", ("'xbc'", "'abc'")),
        ("abx", "abc", "parts at character 2 of 3 (the subject has 3)", ("'abx'", "'abc'")),
        ("ab", "abc", "parts at character 2 of 3 (the subject has 2)", ("'ab'", "'abc'")),
        ("abcd", "abc", "parts at character 3 of 3 (the subject has 4)", ("'abcd'", "'abc'")),
        ("", "abc", "parts at character 0 of 3 (the subject has 0)", ("''", "'abc'")),
        ("a\n", "", "parts at character 0 of 0 (the subject has 2)", (r"'a\n'", "''")),
        (
            "xb" + "c" * 30,
            "ab" + "c" * 30,
            "parts at character 0 of 32 (the subject has 32)",
            ("'xb" + "c" * 30 + "'", "'ab" + "c" * 30 + "'"),
        ),
        (
            "0123456789" * 9 + "x" * 50,
            "0123456789" * 9 + "yz",
            "parts at character 90 of 92 (the subject has 140)",
            ("'01234567890123456789" + "x" * 37 + "...'", "'01234567890123456789yz'"),
        ),
    ],
)
@pytest.mark.parametrize("field", ["text", "mmd"])
def test_texts_are_shown_from_shortly_before_they_part(
    field: str, mine: str, theirs: str, measured: str, details: tuple[str, str]
) -> None:
    what = "text" if field == "text" else "result.mmd"
    sides: list[dict[str, Any]] = [{field: mine}, {field: theirs}]
    compare = compare_output(replace(OUTPUT, **sides[0]), replace(OUTPUT, **sides[1]), None)
    [found] = [one for one in compare if one.what == what]
    lines = (f"subject   {details[0]}", f"reference {details[1]}")
    assert found == Comparison(what, Verdict.WRONG, measured, None, lines)


def test_boxes_that_differ_are_counted_and_three_are_shown() -> None:
    boxes = tuple(Box(k, k, k + 5, k + 5) for k in range(6))
    theirs = replace(OUTPUT, spans=(SpanSeen("text", boxes),))
    mine = replace(OUTPUT, spans=(SpanSeen("text", (boxes[0], *(box._replace(x2=99) for box in boxes[1:]))),))
    found = list(compare_output(mine, theirs, None))[2]
    assert found.measured == "5 of 6 differ"
    assert len(found.details) == 3
    assert found.details[0] == "box 1: text [1, 1, 99, 6] of span 0; the reference has text [1, 1, 6, 6] of span 0"


def test_boxes_of_another_span_of_the_same_label_differ() -> None:
    first, second = Box(1, 2, 3, 4), Box(5, 6, 7, 8)
    together = replace(OUTPUT, spans=(SpanSeen("text", (first, second)), SpanSeen("text", ())))
    apart = replace(OUTPUT, spans=(SpanSeen("text", (first,)), SpanSeen("text", (second,))))
    assert list(compare_output(together, apart, None))[2].verdict is Verdict.WRONG


def test_another_number_of_boxes_is_told() -> None:
    assert compared(spans=(TITLE,))["boxes"].measured == "1; the reference has 3"
    assert compared(spans=(TITLE,))["spans"].measured == "['title']; the reference has ['title', 'image']"
