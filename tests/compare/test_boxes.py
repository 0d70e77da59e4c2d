"""Spans by their labels in order, boxes by their partners."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pytest_dsocr.compare.boxes import compare_boxes, compare_spans, pair_up
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation.observation import SpanSeen

EXACT = tolerances("float32")
LOOSE = EXACT.but({"boxes": 1, "coords": 20 / 999})
MATCH, DRIFT, WRONG = Verdict.MATCH, Verdict.DRIFT, Verdict.WRONG

PAGE = (
    SpanSeen("title", (Box(88, 40, 510, 66),)),
    SpanSeen("text", (Box(88, 90, 480, 170),)),
    SpanSeen("text", (Box(500, 90, 910, 170),)),
    SpanSeen("image", (Box(88, 200, 480, 500), Box(500, 200, 910, 500))),
    SpanSeen("text", (Box(88, 520, 910, 600),)),
)


def moved(spans: Sequence[SpanSeen], by: float) -> list[SpanSeen]:
    return [SpanSeen(span.label, tuple(Box(*(side + by for side in box)) for box in span.boxes)) for span in spans]


def without(*places: int) -> list[SpanSeen]:
    return [span for k, span in enumerate(PAGE) if k not in places]


EXTRA = SpanSeen("text", (Box(88, 700, 910, 760),))
TITLE, LEFT, RIGHT, FIGURES, END = PAGE

CASES: dict[str, tuple[Sequence[SpanSeen], Tolerances, Verdict, Verdict]] = {
    "equal": (PAGE, EXACT, MATCH, MATCH),
    "a little": (moved(PAGE, 1), EXACT, MATCH, WRONG),
    "within": (moved(PAGE, 20), LOOSE, MATCH, DRIFT),
    "beyond": (moved(PAGE, 21), LOOSE, MATCH, WRONG),
    "one beyond": ([*PAGE[:4], *moved([END], 21)], LOOSE, MATCH, WRONG),
    "one too few, exact": (without(2), EXACT, WRONG, WRONG),
    "one too few": (without(2), LOOSE, DRIFT, DRIFT),
    "the first too few": (without(0), LOOSE, DRIFT, DRIFT),
    "one too many": ([*PAGE, EXTRA], LOOSE, DRIFT, DRIFT),
    "one too many in front": ([EXTRA, *PAGE], LOOSE, DRIFT, DRIFT),
    "two too few": (without(1, 2), LOOSE, WRONG, WRONG),
    "a span of two boxes too few": (without(3), LOOSE, DRIFT, WRONG),
    "one box of a span too few": (
        [*PAGE[:3], FIGURES._replace(boxes=FIGURES.boxes[:1]), END],
        LOOSE,
        MATCH,
        DRIFT,
    ),
    "one too few, the others moved": (moved(without(2), 15), LOOSE, DRIFT, DRIFT),
    "one too few and one elsewhere": ([*without(2, 4), EXTRA], LOOSE, DRIFT, WRONG),
    "another label": ([TITLE._replace(label="text"), *PAGE[1:]], LOOSE, WRONG, WRONG),
    "another label, where two may be missing": (
        [TITLE._replace(label="text"), *PAGE[1:]],
        LOOSE.but({"boxes": 2}),
        WRONG,
        WRONG,
    ),
    "labels exchanged": ([TITLE._replace(label="text"), LEFT._replace(label="title"), *PAGE[2:]], LOOSE, WRONG, WRONG),
    "columns exchanged": ([TITLE, RIGHT, LEFT, FIGURES, END], LOOSE, MATCH, WRONG),
    "boxes of a span exchanged": (
        [TITLE, LEFT, RIGHT, FIGURES._replace(boxes=FIGURES.boxes[::-1]), END],
        LOOSE,
        MATCH,
        WRONG,
    ),
    "backwards": (PAGE[::-1], LOOSE, WRONG, WRONG),
    "a span cut in two": (
        [TITLE, LEFT, RIGHT, *(FIGURES._replace(boxes=(box,)) for box in FIGURES.boxes), END],
        LOOSE,
        DRIFT,
        WRONG,
    ),
    "nothing": ([], LOOSE, WRONG, WRONG),
    "no boxes": ([span._replace(boxes=()) for span in PAGE], LOOSE, MATCH, WRONG),
    "a span without boxes too many": ([*PAGE, SpanSeen("text", ())], LOOSE, DRIFT, MATCH),
}


@pytest.mark.parametrize(("mine", "limits", "spans", "boxes"), CASES.values(), ids=CASES)
def test_spans_and_boxes(mine: Sequence[SpanSeen], limits: Tolerances, spans: Verdict, boxes: Verdict) -> None:
    assert compare_spans(mine, PAGE, limits).verdict is spans
    assert compare_boxes(mine, PAGE, limits).verdict is boxes
    assert compare_spans(PAGE, mine, limits).verdict is spans
    assert compare_boxes(PAGE, mine, limits).verdict is boxes


def test_where_one_side_has_nothing_the_other_is_wrong_whatever_the_count() -> None:
    one = [SpanSeen("text", (Box(1, 2, 3, 4),))]
    nothing: list[SpanSeen] = []
    for mine, theirs in ((one, nothing), (nothing, one)):
        assert compare_spans(mine, theirs, LOOSE).verdict is WRONG
        assert compare_boxes(mine, theirs, LOOSE).verdict is WRONG
    assert compare_spans([], [], LOOSE) == not_compared("spans", Reason.NEITHER)
    assert compare_boxes([], [], LOOSE) == not_compared("boxes", Reason.NEITHER)


@pytest.mark.parametrize("by", [3, 9, 15, 18, 20])
def test_lines_that_all_moved_stand_for_the_same_lines(by: int) -> None:
    """Lines 18 apart that moved by nearly as much are closer to their neighbours than to their partners."""
    lines = [SpanSeen("text", (Box(100, 18 * k, 900, 18 * k + 12),)) for k in range(40)]
    pairs = pair_up(moved(lines, by), lines)
    assert pairs.places == [(k, k) for k in range(40)]
    assert compare_boxes(moved(lines, by), lines, LOOSE).verdict is DRIFT


def test_two_that_moved_a_little_are_likelier_than_one_that_moved_far() -> None:
    first, second, third = (SpanSeen("text", (Box(x, y, x + 50, y + 10),)) for x, y in ((0, 0), (10, 1), (20, 0)))
    assert pair_up([second, third], [first, second]).places == [(0, 0), (1, 1)]


def test_the_label_decides_between_boxes_in_one_place() -> None:
    places = Box(100, 100, 500, 500), Box(104, 100, 504, 500)
    theirs = [SpanSeen("image", places[:1]), SpanSeen("table", places[1:])]
    mine = [SpanSeen("image", places[1:]), SpanSeen("table", places[:1])]
    assert compare_boxes(mine, theirs, LOOSE).verdict is DRIFT


@pytest.mark.parametrize(("by", "partner"), [(49.5, 1), (50.5, 0)])
def test_a_label_is_worth_fifty_units(by: float, partner: int) -> None:
    theirs = [LEFT._replace(label="image"), *moved([LEFT], by)]
    assert pair_up([LEFT], theirs).places == [(0, partner)]


def test_the_order_does_not_decide_between_others() -> None:
    column = [SpanSeen("text", (Box(1, 12 * k, 9, 12 * k + 9),)) for k in range(40)]
    found = pair_up(column[::-1], column)
    assert set(found.apart) == {0}
    assert len(found.exchanged) == 39


def test_the_order_decides_between_equals() -> None:
    same = SpanSeen("text", (Box(1, 1, 9, 9),))
    assert pair_up([same] * 2, [same] * 4).places == [(0, 0), (1, 2)]
    assert pair_up([same] * 5, moved([same] * 5, 2)).places == [(k, k) for k in range(5)]


def measured(mine: Sequence[SpanSeen], limits: Tolerances = LOOSE) -> Comparison:
    return compare_boxes(mine, PAGE, limits)


def test_what_moved_is_counted_and_the_worst_are_shown() -> None:
    mine = [*moved([TITLE], 2), *moved([LEFT], 6), RIGHT, *moved([FIGURES], 3), *moved([END], 4)]
    assert measured(mine) == Comparison(
        "boxes",
        DRIFT,
        "5 of 6 moved by up to 0.6% of the page (allowed 2.0%): 6.0/999, on average 3.6/999",
        None,
        (
            "6/999 apart: text [94, 96, 486, 176] of span 1; the reference has text [88, 90, 480, 170] of span 1",
            "4/999 apart: text [92, 524, 914, 604] of span 4; the reference has text [88, 520, 910, 600] of span 4",
            "3/999 apart: image [91, 203, 483, 503] of span 3; the reference has image [88, 200, 480, 500] of span 3",
            "... and 2 more",
        ),
    )


def test_no_more_are_spoken_of_than_there_are() -> None:
    three = measured([*moved([TITLE, LEFT, RIGHT], 2), FIGURES, END])
    assert len(three.details) == 3
    assert "more" not in three.details[-1]
    four = measured([*moved([TITLE, LEFT, RIGHT], 2), FIGURES, *moved([END], 2)])
    assert four.details[3:] == ("... and 1 more",)


def test_what_is_missing_or_surplus_is_named() -> None:
    fewer = measured(without(2), EXACT)
    assert (fewer.measured, fewer.details) == (
        "5; the reference has 6 (allowed difference 0)",
        ("missing: text [500, 90, 910, 170] of span 2 of the reference",),
    )
    more = measured([*PAGE, EXTRA])
    assert (more.measured, more.details) == (
        "7; the reference has 6 (allowed difference 1)",
        ("surplus: text [88, 700, 910, 760] of span 5",),
    )


def test_labels_and_order_are_told() -> None:
    renamed = measured([TITLE._replace(label="text"), *PAGE[1:]])
    assert (renamed.measured, renamed.details) == (
        "1 under another label",
        ("label: text [88, 40, 510, 66] of span 0; the reference has title [88, 40, 510, 66] of span 0",),
    )
    exchanged = measured([TITLE, RIGHT, LEFT, FIGURES, END])
    assert (exchanged.measured, exchanged.details) == (
        "in another order",
        (
            "order: text [500, 90, 910, 170] of span 1 stands before text [88, 90, 480, 170] of span 2; "
            "the reference has them the other way round",
        ),
    )
    regrouped = measured([TITLE, LEFT, RIGHT, *(FIGURES._replace(boxes=(box,)) for box in FIGURES.boxes), END])
    assert (regrouped.measured, regrouped.details) == ("in other spans", ())


def test_the_other_side_has_the_name_that_it_is_given() -> None:
    mine = [TITLE, RIGHT, LEFT]
    for compare in (compare_spans, compare_boxes):
        found = compare(mine, PAGE, EXACT, "the snapshot")
        told = " ".join((found.measured, *found.details))
        assert "the snapshot" in told
        assert "the reference" not in told


def test_spans_are_told_by_what_is_missing_or_surplus() -> None:
    found = compare_spans([*without(0), SpanSeen("table", ())], PAGE, LOOSE)
    assert found == Comparison(
        "spans",
        WRONG,
        "5; the reference has 5 (allowed difference 1); 2 labels missing or surplus",
        None,
        ("missing: span 0 of the reference, title", "surplus: span 4, table"),
    )


def test_what_the_model_may_write_is_compared_without_a_word() -> None:
    """Coordinates beyond any page, whose squares are no numbers."""
    far = [SpanSeen("text", (Box(-1e300, 1e300, 1e9, -5),)), SpanSeen("text", (Box(0, 0, 0, 0),))]
    assert compare_boxes(far, PAGE, LOOSE).verdict is WRONG
    assert compare_boxes(PAGE, far, LOOSE).verdict is WRONG
    assert compare_boxes(far, far, EXACT).verdict is MATCH
    unknown = [SpanSeen("text", (Box(1, math.nan, 3, 4),))]
    assert compare_boxes(unknown, [SpanSeen("text", (Box(1, 2, 3, 4),))], LOOSE).verdict is WRONG


def test_a_distance_is_a_share_of_999() -> None:
    mine, theirs = ([SpanSeen("text", (Box(x, 0, 999, 9),))] for x in (600, 100))
    assert "moved by up to 50.1% of the page" in compare_boxes(mine, theirs, EXACT).measured
