"""Text, spans, boxes, Markdown and files of two outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.compare.output import Tie, compare_output
from pytest_dsocr.compare.signs import Reason, Sign
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.level import Level
from pytest_dsocr.observation.observation import Artefact, Output, SpanSeen
from tests.compare.made import OUTPUT

NAMES = ["text", "spans", "boxes", "result.mmd", "artefacts"]
EXACT = tolerances("float32")
LOOSE = EXACT.but({"boxes": 1, "coords": 0.02, "text": 0.1})
TITLE, IMAGE = OUTPUT.spans
FIGURE = OUTPUT.artefacts["images/0.jpg"]
NOTHING = Output("", (), "", {})


def answer(said: Output) -> Answer:
    return Answer("page-tiny-free", Level.TEXT, said.text, said.spans, said.mmd, said.artefacts)


def compared(tie: Tie | None = None, limits: Tolerances = EXACT, **changes: Any) -> dict[str, Comparison]:
    found = list(compare_output(replace(answer(OUTPUT), **changes), OUTPUT, limits, tie))
    parts = tie is not None and changes.get("text", OUTPUT.text) != OUTPUT.text
    assert [comparison.what for comparison in found] == ["read"] * parts + NAMES
    return {comparison.what: comparison for comparison in found}


def test_equal_outputs_match_and_say_how_much_was_compared() -> None:
    assert {name: (found.verdict, found.measured) for name, found in compared().items()} == {
        "text": ("MATCH", "57 characters"),
        "spans": ("MATCH", "2, labels in order"),
        "boxes": ("MATCH", "3, coordinates equal"),
        "result.mmd": ("MATCH", "10 characters"),
        "artefacts": ("MATCH", "3 files; 1 figure of equal size"),
    }


def test_without_spans_on_both_sides_there_is_nothing_to_compare() -> None:
    found = {one.what: (one.verdict, one.measured) for one in compare_output(answer(NOTHING), NOTHING, EXACT, None)}
    assert found["spans"] == found["boxes"] == ("NOT-COMPARED", "neither side has any")
    assert found["text"] == found["result.mmd"] == ("MATCH", "0 characters")
    boxless = replace(OUTPUT, spans=(SpanSeen("title", ()),))
    found = {one.what: (one.verdict, one.measured) for one in compare_output(answer(boxless), boxless, EXACT, None)}
    assert found["spans"] == ("MATCH", "1, labels in order")
    assert found["boxes"] == ("NOT-COMPARED", "neither side has any")


def test_files_that_the_subject_does_not_write_are_not_offered() -> None:
    found = compared(mmd=None, artefacts=None)
    assert found["result.mmd"] == not_compared("result.mmd", Reason.NOT_OFFERED)
    assert found["artefacts"] == not_compared("artefacts", Reason.NOT_OFFERED)
    assert compared(mmd="", artefacts={})["result.mmd"].verdict is Verdict.WRONG


@pytest.mark.parametrize(
    ("changes", "drifting"),
    [
        ({"text": OUTPUT.text + "."}, {"text"}),
        ({"mmd": OUTPUT.mmd + "."}, {"result.mmd"}),
        ({"spans": (TITLE, IMAGE._replace(boxes=IMAGE.boxes[:1]))}, {"boxes"}),
        ({"spans": (TITLE._replace(boxes=(Box(3, 0, 1, 22),)), IMAGE)}, {"boxes"}),
        ({"artefacts": {**OUTPUT.artefacts, "images/1.jpg": FIGURE}}, {"artefacts"}),
    ],
)
def test_limits_make_a_drift_of_what_is_within_them(changes: Any, drifting: set[str]) -> None:
    found = compared(limits=LOOSE, **changes)
    assert {name for name, one in found.items() if one.verdict is Verdict.DRIFT} == drifting
    assert {name for name, one in found.items() if one.verdict is Verdict.MATCH} == set(NAMES) - drifting
    after = compared(Tie(4, OUTPUT, sure=True), LOOSE, **changes)
    assert {one.verdict for one in after.values()} == {Verdict.DRIFT, Verdict.MATCH}


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
    "a file too many": ({"artefacts": {**OUTPUT.artefacts, "images/9.jpg": FIGURE}}, {"artefacts"}),
    "a figure of other bytes": (files(figure=Artefact(813, (30, 20))), {"artefacts"}),
    "a figure of other size": (files(figure=Artefact(812, (20, 30))), {"artefacts"}),
    "overlay, mmd and info of other bytes": (
        files(mmd=Artefact(1), overlay=Artefact(2, (3, 4)), info=Artefact(5)),
        set(),
    ),
    "without our own file": (files(info=None), set()),
    "a picture that only matplotlib draws": ({"artefacts": {**OUTPUT.artefacts, "geo.jpg": FIGURE}}, set()),
}


@pytest.mark.parametrize(("changes", "wrong"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_wrong_where_it_shows(changes: Any, wrong: set[str]) -> None:
    assert {name for name, one in compared(**changes).items() if one.verdict is Verdict.WRONG} == wrong


@pytest.mark.parametrize(("changes", "flips"), CHANGES.values(), ids=CHANGES)
def test_a_change_follows_a_tie_only_where_its_steps_give_it(changes: Any, flips: set[str]) -> None:
    changes = {"text": OUTPUT.text + ".", **changes}
    gives = Tie(4, replace(OUTPUT, **changes), sure=False)
    after = compared(gives, **changes)
    assert after["read"].verdict is Verdict.MATCH
    assert {name for name, one in after.items() if one.verdict is Verdict.TIE_FLIP} == {"text", *flips}
    assert Verdict.WRONG not in {one.verdict for one in after.values()}
    otherwise = compared(Tie(4, replace(OUTPUT, text="other"), sure=False), **changes)
    assert {name for name, one in otherwise.items() if one.verdict is Verdict.WRONG} == {"read", "text", *flips}


@pytest.mark.parametrize(("changes", "wrong"), CHANGES.values(), ids=CHANGES)
def test_of_a_text_that_is_the_references_no_tie_excuses_the_rest(changes: Any, wrong: set[str]) -> None:
    if "text" not in changes:
        gives = Tie(4, replace(OUTPUT, text="other", **changes), sure=False)
        assert compared(gives, **changes) == compared(**changes)
        assert {name for name, one in compared(gives, **changes).items() if one.verdict is Verdict.WRONG} == wrong


def test_a_file_of_ours_may_be_missing_from_the_reference() -> None:
    vendors = replace(OUTPUT, **files(info=None))
    assert [one.verdict for one in compare_output(answer(OUTPUT), vendors, EXACT, None)][-1] is Verdict.MATCH


def test_a_tie_changes_wrong_verdicts_and_keeps_what_was_measured() -> None:
    changes: dict[str, Any] = {"text": "x" + OUTPUT.text, "spans": ()}
    plain, tied = compared(**changes), compared(Tie(3, replace(OUTPUT, **changes), sure=False), **changes)
    assert tied["text"].measured == f"follows the tie at step 3: {plain['text'].measured}"
    assert (tied["text"].details, tied["text"].signs) == (plain["text"].details, plain["text"].signs)
    assert tied["text"].diff == plain["text"].diff != ()
    assert tied["text"].error is None
    assert tied["result.mmd"] == plain["result.mmd"]
    there = "with the subject's own steps, which leave the reference's at a tie at step 3"
    assert tied["read"] == Comparison("read", Verdict.MATCH, f"agrees {there}")
    other = compared(Tie(3, OUTPUT, sure=False), **changes)
    assert other["read"] == Comparison("read", Verdict.WRONG, f"disagrees {there}")
    measured = f"is not what the subject's own steps give after the tie at step 3: {plain['text'].measured}"
    assert other["text"] == replace(plain["text"], measured=measured)


def test_steps_that_read_the_page_no_more_are_told_first() -> None:
    plain, tied = compared(text="x" * 99), compared(Tie(3, replace(OUTPUT, text="x" * 99), sure=True), text="x" * 99)
    assert tied["read"].verdict is Verdict.MATCH
    assert tied["text"].verdict is Verdict.WRONG
    assert tied["text"].measured == f"no longer reads this page after the tie at step 3: {plain['text'].measured}"
    assert tied["text"].details[0] == "unrelated: 99 edits of the 99 characters after it (allowed 50%)"
    assert tied["text"].details[-len(plain["text"].details) :] == plain["text"].details
    assert tied["text"].signs == plain["text"].signs | {Sign.UNRELATED, Sign.LENGTH}


def test_of_two_outputs_of_nothing_there_is_nothing_to_excuse() -> None:
    nothing = compare_output(answer(NOTHING), NOTHING, EXACT, Tie(3, NOTHING, sure=True))
    assert [one.verdict for one in nothing] == ["MATCH", "NOT-COMPARED", "NOT-COMPARED", "MATCH", "MATCH"]
