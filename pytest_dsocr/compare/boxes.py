"""Compare spans by their labels in order, and each box with its partner, found by optimal assignment.

Another label or another order is another reading of the page, and WRONG under any limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import Indel

from pytest_dsocr.base.words import shown
from pytest_dsocr.compare.systematic import shared_move
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import REFERENCE, Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.contract.markup import UNITS, Box
from pytest_dsocr.records.reference_result import SpanSeen

SHOWN = 3
LABEL_UNITS = 50.0
"""A box with the right label this far away is as good a partner as a box with another label in the same place."""
FARTHEST = 1e6
"""Coordinates are clipped to it: a model may write 1e300, whose square overflows."""


class Placed(NamedTuple):
    """A box in its span."""

    span: int
    label: str
    box: Box

    @classmethod
    def of(cls, spans: Sequence[SpanSeen]) -> list[Placed]:
        """Return every box of a page's spans."""
        return [cls(k, span.label, box) for k, span in enumerate(spans) for box in span.boxes]

    def __str__(self) -> str:
        return f"{shown(self.label, 30)} {list(self.box)} of span {self.span}"


@dataclass(frozen=True, eq=False)
class Pairs:
    """The boxes of both sides, and which of them are partners."""

    actual: Sequence[Placed]
    expected: Sequence[Placed]
    places: Sequence[tuple[int, int]]
    """Indices of each pair, in the order of ``actual``."""

    @property
    def both(self) -> list[tuple[Placed, Placed]]:
        """The pairs themselves."""
        return [(self.actual[a], self.expected[b]) for a, b in self.places]

    @property
    def apart(self) -> list[float]:
        """The largest distance between the sides of each pair, in 1/999 of the page."""
        return [_apart(a.box, b.box) for a, b in self.both]

    @property
    def missing(self) -> list[Placed]:
        """Boxes of the reference without a partner."""
        return _without(self.expected, {b for _, b in self.places})

    @property
    def surplus(self) -> list[Placed]:
        """Boxes of the subject without a partner."""
        return _without(self.actual, {a for a, _ in self.places})

    @property
    def renamed(self) -> list[tuple[Placed, Placed]]:
        """Pairs with different labels."""
        return [(a, b) for a, b in self.both if a.label != b.label]

    @property
    def exchanged(self) -> list[tuple[Placed, Placed]]:
        """Neighbouring boxes of the subject whose partners are in the opposite order."""
        return [(self.actual[a], self.actual[c]) for (a, b), (c, d) in pairwise(self.places) if b > d]

    @property
    def regrouped(self) -> bool:
        """Whether boxes of one span on one side belong to several spans on the other."""
        spans = {(a.span, b.span) for a, b in self.both}
        return any(len({pair[side] for pair in spans}) < len(spans) for side in (0, 1))


def compare_spans(
    actual: Sequence[SpanSeen], expected: Sequence[SpanSeen], limits: Tolerances, other: str = REFERENCE
) -> Comparison:
    """Compare the labels in order with those of ``other``; ``limits.boxes`` of them may be missing or surplus."""
    labels = [[span.label for span in spans] for spans in (actual, expected)]
    if not any(labels):
        return not_compared("spans", Reason.NEITHER)
    if labels[0] == labels[1]:
        return Comparison("spans", Verdict.MATCH, f"{len(expected)}, labels in order")
    edits = Indel.editops(labels[0], labels[1])
    fine = all(labels) and len(edits) == abs(len(actual) - len(expected)) <= limits.boxes
    measured = f"{_counts(len(actual), len(expected), limits, other)}; {len(edits)} labels missing or surplus"
    details = (
        f"surplus: span {edit.src_pos}, {shown(labels[0][edit.src_pos])}"
        if edit.tag == "delete"
        else f"missing: span {edit.dest_pos} of {other}, {shown(labels[1][edit.dest_pos])}"
        for edit in edits
    )
    return Comparison("spans", Verdict.DRIFT if fine else Verdict.WRONG, measured, None, _first(list(details)))


def compare_boxes(
    actual: Sequence[SpanSeen], expected: Sequence[SpanSeen], limits: Tolerances, other: str = REFERENCE
) -> Comparison:
    """Compare the boxes with those of ``other``.

    They DRIFT if their numbers differ by at most ``limits.boxes``, and every box has its partner's label, span and
    place in the order. No side of a box may be further from its partner's than ``limits.coords`` of the page. A box
    without a partner counts only for the number.
    """
    boxes = [[(span.label, span.boxes) for span in spans if span.boxes] for spans in (actual, expected)]
    if not any(boxes):
        return not_compared("boxes", Reason.NEITHER)
    if boxes[0] == boxes[1]:
        return Comparison("boxes", Verdict.MATCH, f"{sum(len(found) for _, found in boxes[1])}, coordinates equal")
    pairs = pair_up(actual, expected)
    verdict = Verdict.DRIFT if _within(pairs, limits) else Verdict.WRONG
    move = shared_move([(a.box, b.box) for a, b in pairs.both])
    measured = "; ".join([*_measured(pairs, limits, other), *([f"{Symptom.SHARED_MOVE}: {move}"] if move else [])])
    is_lacking = pairs.missing and not (any(pairs.apart) or pairs.surplus or pairs.renamed or pairs.regrouped)
    signs = {Symptom.SHARED_MOVE: bool(move), Symptom.BOXES_MISSING: is_lacking and not pairs.exchanged}
    found = frozenset(sign for sign, is_there in signs.items() if is_there)
    return Comparison("boxes", verdict, measured, None, tuple(_details(pairs, other)), found)


def pair_up(actual: Sequence[SpanSeen], expected: Sequence[SpanSeen]) -> Pairs:
    """Pair the boxes of both sides so that the sum of squared distances is smallest.

    Distances are squared so that a shift of all boxes keeps the pairs. Ties are decided by the label, then the order.
    """
    from scipy.optimize import linear_sum_assignment  # takes longer to import than a page to compare

    a, b = Placed.of(actual), Placed.of(expected)
    if not a or not b:
        return Pairs(a, b, ())
    corners = [np.nan_to_num(np.array([one.box for one in side], float)).clip(-FARTHEST, FARTHEST) for side in (a, b)]
    costs = np.square(corners[0][:, None] - corners[1][None]).sum(axis=-1)
    labels = [np.array([one.label for one in side], object) for side in (a, b)]
    costs += 4 * LABEL_UNITS**2 * (labels[0][:, None] != labels[1][None])
    costs += np.square(_progress(len(a))[:, None] - _progress(len(b))[None])
    rows, columns = linear_sum_assignment(costs)
    return Pairs(a, b, list(zip(rows.tolist(), columns.tolist(), strict=True)))


def _apart(a: Box, b: Box) -> float:
    distances = [abs(x - y) for x, y in zip(a, b, strict=True)]
    return math.inf if any(map(math.isnan, distances)) else min(max(distances), FARTHEST)


def _progress(count: int) -> npt.NDArray[np.float64]:
    return np.arange(count) / count


def _within(pairs: Pairs, limits: Tolerances) -> bool:
    if not pairs.places or abs(len(pairs.actual) - len(pairs.expected)) > limits.boxes:
        return False
    in_place = all(apart / UNITS <= limits.coords for apart in pairs.apart)
    return in_place and not (pairs.renamed or pairs.exchanged or pairs.regrouped)


def _measured(pairs: Pairs, limits: Tolerances, other: str) -> Iterator[str]:
    if len(pairs.actual) != len(pairs.expected):
        yield _counts(len(pairs.actual), len(pairs.expected), limits, other)
    moved = [apart for apart in pairs.apart if apart]
    if moved:
        yield (
            f"{len(moved)} of {len(pairs.places)} moved by up to {max(moved) / UNITS:.1%} of the page "
            f"(allowed {limits.coords:.1%}): {max(moved):.1f}/999, on average {sum(moved) / len(moved):.1f}/999"
        )
    if pairs.renamed:
        yield f"{len(pairs.renamed)} under another label"
    if pairs.exchanged:
        yield "in another order"
    if pairs.regrouped:
        yield "in other spans"


def _details(pairs: Pairs, other: str) -> Iterator[str]:
    """Yield the boxes furthest from their partners, then other labels, another order, and boxes without partner."""
    ranked = sorted(zip(pairs.apart, pairs.both, strict=True), key=lambda found: -found[0])
    moved = [f"{apart:.4g}/999 apart: {a}; {other} has {b}" for apart, (a, b) in ranked if apart]
    for lines in (
        moved,
        [f"label: {a}; {other} has {b}" for a, b in pairs.renamed],
        [f"order: {a} stands before {b}; {other} has them the other way round" for a, b in pairs.exchanged],
        [f"missing: {one} of {other}" for one in pairs.missing],
        [f"surplus: {one}" for one in pairs.surplus],
    ):
        yield from _first(lines)


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - SHOWN
    return (*lines[:SHOWN], f"... and {more} more") if more > 0 else tuple(lines)


def _counts(actual: int, expected: int, limits: Tolerances, other: str) -> str:
    return f"{actual}; {other} has {expected} (allowed difference {limits.boxes})"


def _without(boxes: Sequence[Placed], paired: set[int]) -> list[Placed]:
    return [one for k, one in enumerate(boxes) if k not in paired]
