"""Relations between the boxes of two outputs: coordinates exchanged, moved, scaled, mirrored or clamped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_dsocr.base.words import are
from pytest_dsocr.contract.image import first_bars, fitted
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import measured

Boxes = npt.NDArray[np.float64]
"""``[N, 4]``: left, top, right and bottom of each box."""
FARTHEST = 1e6
"""Largest coordinate that is measured."""
NEAR = 1.0
"""Largest distance of a coordinate that a scale reproduces, in 1/999 of the page: both sides round."""
LABELS = 3
"""Largest number of labels that are named."""

FIXED: Mapping[str, tuple[str, Callable[[Boxes], Boxes]]] = {
    "axes-exchanged": ("x and y exchanged", lambda boxes: boxes[:, [1, 0, 3, 2]]),
    "corners-exchanged": ("the two corners exchanged", lambda boxes: boxes[:, [2, 3, 0, 1]]),
    "as-sizes": ("width and height in place of the right and lower edge", lambda boxes: _sized(boxes)),
    "as-centres": ("the centre in place of the left and upper edge", lambda boxes: _centred(boxes)),
    "mirrored-across": ("mirrored from left to right", lambda boxes: _mirrored(boxes, 0)),
    "mirrored-down": ("mirrored from top to bottom", lambda boxes: _mirrored(boxes, 1)),
}
"""Relations without a parameter, the simplest first."""


class BoxUnits(NamedTuple):
    """Units that boxes may be in besides 1/999 of the page."""

    words: str
    sides: tuple[int, int]
    """Width and height of a page in these units."""
    start: tuple[int, int] = (0, 0)
    """Left upper corner of the page in these units."""

    def of(self, boxes: Boxes) -> Boxes:
        """Return boxes of the model in these units, not truncated."""
        return boxes / UNITS * (2 * self.sides) + (2 * self.start)

    def __str__(self) -> str:
        pairs = zip("xy", self.sides, self.start, strict=True)
        factors = ", ".join(f"{name} times {side / UNITS:.3g}{f' {by:+}' * bool(by)}" for name, side, by in pairs)
        return f"{self.words} ({factors})"


def of_boxes(
    actual: Sequence[tuple[str, Sequence[float]]],
    expected: Sequence[tuple[str, Sequence[float]]],
    units: Sequence[BoxUnits] = (),
) -> Iterator[Description]:
    """Yield relations between boxes with their labels, the simplest first, and an anatomy last.

    ``units`` are those that the actual boxes may be in.
    """
    if len(actual) == len(expected) and actual:
        own, other = (np.array([box for _, box in of], float) for of in (actual, expected))
        if all((np.abs(one) < FARTHEST).all() for one in (own, other)):  # a model may write 1e300, or NaN
            yield from measured(_coordinates, own, other, units)
    missing, surplus = (Counter(label for label, _ in of) for of in (expected, actual))
    missing, surplus = missing - surplus, surplus - missing
    kept = {(label, tuple(box)) for label, box in expected}
    right = sum((label, tuple(box)) in kept for label, box in actual)
    if missing and not surplus and right == len(actual):
        yield Description("missing", f"{_named(missing)} of {len(expected)} missing, the others right", 1.0, right)
    if surplus and not missing and right == len(expected):
        yield Description("surplus", f"{_named(surplus)} more than the reference's {len(expected)}", 1.0, right)
    yield Description("anatomy", f"{right} of the reference's {_count(len(expected))} {are(right)} right", 0.0, right)


def _named(labels: Counter[str]) -> str:
    words = ", ".join(f"{number} {label!r}" for label, number in labels.most_common(LABELS))
    return f"boxes {words}"


def _count(number: int) -> str:
    return f"{number} box{'es' * (number != 1)}"


def _coordinates(own: Boxes, other: Boxes, units: Sequence[BoxUnits]) -> Iterator[Description]:
    wrong = own != other
    for kind, (words, change) in FIXED.items():
        yield _checked(kind, words, change(other), own, wrong)
    if (moved := _moved(own, other)) is not None:
        yield moved
    if np.abs(own - other).max(axis=1).mean() > 2 * NEAR:  # a smaller difference would be within the rounding
        yield from _in_units(own, other, units)
        yield from _scaled(own, other)
    low, high = own.min(), own.max()
    if other.min() < low or other.max() > high:
        made = np.minimum(np.maximum(other, low), high)
        yield _checked("clamped", f"clamped to {low:g} to {high:g}", made, own, wrong)


def _checked(
    kind: str, words: str, made: Boxes, own: Boxes, wrong: npt.NDArray[np.bool_], near: float = 0.0, of: int = 0
) -> Description:
    """Return a relation with the share of the coordinates that it reproduces among the wrong ones."""
    right = (np.abs(made - own) <= near) & wrong
    spoilt = int(((np.abs(made - own) > near) & ~wrong).sum())
    share = max(0, int(right.sum()) - spoilt) / max(1, int(wrong.sum()))
    return Description(kind, f"{_count(of or len(own))}: {words}", share, len(own))


def _moved(own: Boxes, other: Boxes) -> Description | None:
    """Return a shift: that of the first corner of each box, verified on the second."""
    by = np.median(own[:, :2] - other[:, :2], axis=0)
    if not by.any():
        return None
    behind = own[:, 2:], other[:, 2:] + by
    words = f"moved by ({by[0]:+g}, {by[1]:+g}) of {UNITS}"
    return _checked("boxes-moved", words, behind[1], behind[0], behind[0] != other[:, 2:])


def _in_units(own: Boxes, other: Boxes, units: Sequence[BoxUnits]) -> Iterator[Description]:
    """Yield the units that all boxes are in, within their rounding; several if the boxes do not tell them apart."""
    found = [one for one in units if (np.abs(one.of(other) - own) <= NEAR).all()]
    if found:
        words = " or ".join(map(str, found)) + (_whole(found[0].of(other), own) if len(found) == 1 else "")
        yield Description("in-pixels", f"{_count(len(own))}: {words}", 1.0, len(own))


def _whole(exact: Boxes, own: Boxes) -> str:
    """Say how exact edges are made whole, and how many tell this from the other way; empty if that is not known."""
    cut, near = np.trunc(exact), np.rint(exact)
    telling = int((cut != near).sum())
    for made, words in ((cut, "truncated, not rounded"), (near, "rounded, not truncated")):
        if telling and (made == own).all():
            return f", {words}: {telling} of {own.size} edges tell"
    return ""


def _scaled(own: Boxes, other: Boxes) -> Iterator[Description]:
    """Yield a scale, also with a shift, for each axis: fitted to every second box, verified on the others.

    Of a single box it is fitted to one corner.
    """
    a, b = own.reshape(-1, 2), other.reshape(-1, 2)
    behind = np.arange(len(a)) // (2 if len(own) > 1 else 1) % 2 == 1
    for shifts in (0.0, 1.0):
        made, words = b.copy(), []
        for axis, name in enumerate("xy"):
            terms = np.stack([b[:, axis], np.full(len(b), shifts)], axis=1)
            (scale, by), *_ = np.linalg.lstsq(terms[~behind], a[~behind, axis], rcond=None)
            made[:, axis] = terms @ [scale, by]
            words.append(f"{name} times {scale:.3g}{f' {by:+.0f}' if shifts else ''}")
        wrong = a[behind] != b[behind]
        yield _checked("scaled", ", ".join(words), made[behind], a[behind], wrong, NEAR, len(own))


def _sized(boxes: Boxes) -> Boxes:
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)


def _centred(boxes: Boxes) -> Boxes:
    size = boxes[:, 2:] - boxes[:, :2]
    return np.concatenate([boxes[:, :2] + size // 2, size], axis=1)


def _mirrored(boxes: Boxes, axis: int) -> Boxes:
    made = boxes.copy()
    made[:, [axis, axis + 2]] = UNITS - boxes[:, [axis + 2, axis]]
    return made


def units_of(size: tuple[int, int], preset: Preset) -> tuple[BoxUnits, ...]:
    """Return the units of boxes in pixels: of a page of this size, and of the view of it."""
    side = preset.view_size
    inner = (side, side) if preset.is_squashed else fitted(size, side)
    page, view = (f"in pixels of the {name}" for name in ("page", "view"))
    of_page = BoxUnits(f"{page}, {size[0]} x {size[1]}", size)
    of_view = BoxUnits(f"{view}, {side} x {side}", (side, side))
    if inner == (side, side):
        return of_page, of_view
    inside = BoxUnits(f"{view} with the page's bars, {side} x {side}", inner, first_bars(inner, side))
    return of_page, inside, of_view
