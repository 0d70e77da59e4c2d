"""Views that show the page shifted by whole pixels: all by one shift, or each crop by its place in the grid.

Shapes: N views, 3 colours, H x W pixels.
"""

from collections.abc import Iterator, Sequence
from statistics import median

from torch import Tensor

from pytest_dsocr.describe import spectrum
from pytest_dsocr.describe.description import Description

MOST_SHIFT_PX = 40
"""Largest shift of a view that is looked for."""
COLOUR = 1
"""Colour in which a shift is looked for; all are verified."""
Shift = tuple[int, int]
"""Pixels down and to the right."""


def relations(actual: Tensor, expected: Tensor, grid: tuple[int, int] = (1, 1)) -> Iterator[Description]:
    """Yield one shift of all views, or else a stride between crops, found by phase correlation.

    Args:
        actual: the subject's levels ``[N, 3, H, W]``.
        expected: the expected levels.
        grid: columns and rows of crops.
    """
    apart = (actual - expected).abs().sum(dim=(1, 2, 3))
    first = _found(actual, expected, int(apart.argmax()))
    if first != (0, 0):
        share = _share(actual, expected, [first] * len(actual))
        yield Description("shifted", f"the picture is shifted by {_said(first)}", share, actual.numel())
    columns, rows = grid
    if columns * rows != len(actual) or len(actual) == 1:
        return
    found = {view: _found(actual, expected, view) for view in apart.nonzero().flatten().tolist()}
    down = round(median([shift[0] / (view // columns) for view, shift in found.items() if view // columns] or [0]))
    right = round(median([shift[1] / (view % columns) for view, shift in found.items() if view % columns] or [0]))
    if down or right:
        shifts = [(down * (view // columns), right * (view % columns)) for view in range(len(actual))]
        height, width = actual.shape[-2:]
        steps = [f"{_said((0, right))} for each column before it"] * bool(right)
        steps += [f"{_said((down, 0))} for each row before it"] * bool(down)
        strides = [f"{width - right} px apart along a row instead of {width}"] * bool(right)
        strides += [f"{height - down} px apart along a column instead of {height}"] * bool(down)
        text = f"each crop is shifted by {' and '.join(steps)}: the crops begin {' and '.join(strides)}"
        yield Description("shifted", text, _share(actual, expected, shifts), actual.numel())


def _found(actual: Tensor, expected: Tensor, view: int) -> Shift:
    """Return the shift of a view; none if it is too large."""
    shift = spectrum.shift(actual[view, COLOUR], expected[view, COLOUR])
    return shift if max(map(abs, shift)) <= MOST_SHIFT_PX else (0, 0)


def _said(shift: Shift) -> str:
    down, right = shift
    ways = [f"{abs(right)} px to the {'right' if right > 0 else 'left'}"] * bool(right)
    return " and ".join(ways + [f"{abs(down)} px {'down' if down > 0 else 'up'}"] * bool(down))


def _share(actual: Tensor, expected: Tensor, shifts: Sequence[Shift]) -> float:
    """Return the share of the difference that one shift for each view explains, where both show the page."""
    left = before = 0.0
    for own, right, shift in zip(actual, expected, shifts, strict=True):
        shown = (..., *(slice(max(by, 0), size + min(by, 0)) for by, size in zip(shift, own.shape[1:], strict=True)))
        left += float((own - right.roll(shift, (-2, -1)))[shown].square().sum())
        before += float((own - right)[shown].square().sum())
    return max(0.0, 1 - (left / before) ** 0.5) if before else 0.0
