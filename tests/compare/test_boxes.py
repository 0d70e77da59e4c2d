"""Spans compared in order by their labels, boxes by their partners; snapshots pin the words."""

import math
from collections.abc import Sequence

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.boxes import compare_boxes, compare_spans, pair_up
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.reference_result import SpanSeen
from tests.compare.made import shown

EXACT = tolerances("float32")
LOOSE = EXACT.but({"boxes": 1, "coords": 20 / 999})
MATCH, DRIFT, WRONG = Verdict.MATCH, Verdict.DRIFT, Verdict.WRONG
Spans = Sequence[SpanSeen]

PAGE = (
    SpanSeen("title", (Box(88, 40, 510, 66),)),
    SpanSeen("text", (Box(88, 90, 480, 170),)),
    SpanSeen("text", (Box(500, 90, 910, 170),)),
    SpanSeen("image", (Box(88, 200, 480, 500), Box(500, 200, 910, 500))),
    SpanSeen("text", (Box(88, 520, 910, 600),)),
)
TITLE, LEFT, RIGHT, FIGURES, END = PAGE
EXTRA = SpanSeen("text", (Box(88, 700, 910, 760),))
RENAMED = [TITLE._replace(label="text"), *PAGE[1:]]


def moved(spans: Spans, by: float) -> list[SpanSeen]:
    return [SpanSeen(span.label, tuple(Box(*(side + by for side in box)) for box in span.boxes)) for span in spans]


def without(*places: int) -> list[SpanSeen]:
    return [span for k, span in enumerate(PAGE) if k not in places]


def figures(*boxes: tuple[Box, ...]) -> list[SpanSeen]:
    return [TITLE, LEFT, RIGHT, *(SpanSeen("image", one) for one in boxes), END]


CASES: dict[str, tuple[Spans, Tolerances, Verdict, Verdict]] = {
    "equal": (PAGE, EXACT, MATCH, MATCH),
    "a little": (moved(PAGE, 1), EXACT, MATCH, WRONG),
    "within": (moved(PAGE, 20), LOOSE, MATCH, DRIFT),
    "beyond": (moved(PAGE, 21), LOOSE, MATCH, WRONG),
    "one beyond": ([*PAGE[:4], *moved([END], 21)], LOOSE, MATCH, WRONG),
    "five moved": ([*moved([TITLE], 2), *moved([LEFT], 6), *PAGE[2:3], *moved(PAGE[3:], 3)], LOOSE, MATCH, DRIFT),
    "three moved": ([*moved(PAGE[:3], 2), *PAGE[3:]], LOOSE, MATCH, DRIFT),
    "one too few, exact": (without(2), EXACT, WRONG, WRONG),
    "one too few": (without(2), LOOSE, DRIFT, DRIFT),
    "the first too few": (without(0), LOOSE, DRIFT, DRIFT),
    "one too many": ([*PAGE, EXTRA], LOOSE, DRIFT, DRIFT),
    "one too many in front": ([EXTRA, *PAGE], LOOSE, DRIFT, DRIFT),
    "two too few": (without(1, 2), LOOSE, WRONG, WRONG),
    "a span of two boxes too few": (without(3), LOOSE, DRIFT, WRONG),
    "one box of a span too few": (figures(FIGURES.boxes[:1]), LOOSE, MATCH, DRIFT),
    "one too few, the others moved": (moved(without(2), 15), LOOSE, DRIFT, DRIFT),
    "one too few and one elsewhere": ([*without(2, 4), EXTRA], LOOSE, DRIFT, WRONG),
    "one too few and one without boxes": ([*without(0), SpanSeen("table", ())], LOOSE, WRONG, DRIFT),
    "another label": (RENAMED, LOOSE, WRONG, WRONG),
    "another label, where two may be missing": (RENAMED, LOOSE.but({"boxes": 2}), WRONG, WRONG),
    "labels exchanged": ([RENAMED[0], LEFT._replace(label="title"), *PAGE[2:]], LOOSE, WRONG, WRONG),
    "columns exchanged": ([TITLE, RIGHT, LEFT, FIGURES, END], LOOSE, MATCH, WRONG),
    "boxes of a span exchanged": (figures(FIGURES.boxes[::-1]), LOOSE, MATCH, WRONG),
    "backwards": (PAGE[::-1], LOOSE, WRONG, WRONG),
    "a span cut in two": (figures(FIGURES.boxes[:1], FIGURES.boxes[1:]), LOOSE, DRIFT, WRONG),
    "nothing": ([], LOOSE, WRONG, WRONG),
    "no boxes": ([span._replace(boxes=()) for span in PAGE], LOOSE, MATCH, WRONG),
    "a span without boxes too many": ([*PAGE, SpanSeen("text", ())], LOOSE, DRIFT, MATCH),
    "beyond any page": ([SpanSeen("text", (Box(-1e300, 1e300, 1e9, -5),)), EXTRA], LOOSE, WRONG, WRONG),
    "no number": ([SpanSeen("title", (Box(88, math.nan, 510, 66),)), *PAGE[1:]], LOOSE, MATCH, WRONG),
}


@pytest.mark.parametrize(("actual", "limits", "spans", "boxes"), CASES.values(), ids=CASES)
def test_spans_and_boxes(actual: Spans, limits: Tolerances, spans: Verdict, boxes: Verdict) -> None:
    assert compare_spans(actual, PAGE, limits).verdict is spans
    assert compare_boxes(actual, PAGE, limits).verdict is boxes
    assert compare_spans(PAGE, actual, limits).verdict is spans
    assert compare_boxes(PAGE, actual, limits).verdict is boxes


def test_what_differs_is_counted_and_the_worst_are_named(snapshot: SnapshotAssertion) -> None:
    both = (compare_spans, compare_boxes)
    found = {
        name: [compare(one, PAGE, limits, "the snapshot") for compare in both]
        for name, (one, limits, *_) in CASES.items()
    }
    assert {name: [shown(one) for one in pair] for name, pair in found.items()} == snapshot
    assert not any("the reference" in shown(one) for pair in found.values() for one in pair)


@pytest.mark.parametrize("by", [3, 9, 15, 18, 20])
def test_lines_that_all_moved_stand_for_the_same_lines(by: int) -> None:
    """Lines 18 apart that moved by nearly as much are closer to their neighbours than to their partners."""
    lines = [SpanSeen("text", (Box(100, 18 * k, 900, 18 * k + 12),)) for k in range(40)]
    assert pair_up(moved(lines, by), lines).places == [(k, k) for k in range(40)]
    assert compare_boxes(moved(lines, by), lines, LOOSE).verdict is DRIFT


def test_two_that_moved_a_little_are_likelier_than_one_that_moved_far() -> None:
    first, second, third = (SpanSeen("text", (Box(x, y, x + 50, y + 10),)) for x, y in ((0, 0), (10, 1), (20, 0)))
    assert pair_up([second, third], [first, second]).places == [(0, 0), (1, 1)]


@pytest.mark.parametrize(("by", "partner"), [(4, 1), (49.5, 1), (50.5, 0)])
def test_a_label_decides_in_one_place_and_is_worth_fifty_units(by: float, partner: int) -> None:
    expected = [LEFT._replace(label="image"), *moved([LEFT], by)]
    assert pair_up([LEFT], expected).places == [(0, partner)]


def test_the_order_decides_between_equals_and_not_between_others() -> None:
    column = [SpanSeen("text", (Box(1, 12 * k, 9, 12 * k + 9),)) for k in range(40)]
    found = pair_up(column[::-1], column)
    assert ({*found.apart}, len(found.exchanged)) == ({0}, 39)
    same = SpanSeen("text", (Box(1, 1, 9, 9),))
    assert pair_up([same] * 2, [same] * 4).places == [(0, 0), (1, 2)]
    assert pair_up([same] * 5, moved([same] * 5, 2)).places == [(k, k) for k in range(5)]
