"""Describe how the pixels of views differ from the expected ones: other levels, another place, another resizing.

Shapes: N views, 3 colours, H x W pixels.
"""

from collections.abc import Callable, Iterator
from itertools import permutations

import torch
from torch import Tensor

from pytest_dsocr.describe import bars, colours, distinct, levels, shifts, spectrum
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.measured import measured
from pytest_dsocr.describe.pair import simplest, views_named
from pytest_dsocr.describe.resizing import Source, resized
from pytest_dsocr.describe.rounding import BY_TRUNCATION, FORMATS, truncated
from pytest_dsocr.describe.views import Views

LEAST_PX = 16
FEW = 0.1
"""Share of differences up to which they count as exceptions."""
HALF_OF_ALL = 0.5


def describe_pixels(
    actual: Tensor, expected: Tensor, grid: tuple[int, int] = (1, 1), source: Source | None = None
) -> Description | None:
    """Return the simplest relation of two tensors of pixels ``[N, 3, H, W]``, or else how and where they differ.

    None if all values are equal. The pixels are those of the contract: level / 127.5 - 1.

    Args:
        actual: the subject's.
        expected: those of the contract.
        grid: columns and rows of crops.
        source: their page, if it is known; the views are then made again from it, resized in other ways.
    """
    if actual.shape != expected.shape:
        found = resized(_levels(actual.float()), _levels(expected.float()), source) if source else None
        return found if found and found.explains else _of_other_shape(actual.float(), expected.float())
    own, right = actual.float(), expected.float()
    if own.equal(right):
        return None
    if (unrounded := next(measured(_unrounded, own, right), None)) is not None:
        return unrounded
    if (cut := next(measured(_truncated, own, right), None)) is not None:
        return cut
    if (fewer := simplest(measured(distinct.relations, own, right))) is not None:
        return fewer
    views = Views(_levels(own), _levels(right))
    if (found := simplest(_relations(views, grid, source))) is not None:
        return found
    differing = views.apart.abs().amax(dim=(1, 2, 3)) > levels.OF_ROUNDING
    places = differing.nonzero().flatten().tolist()
    if not 0 < len(places) < len(differing):
        return _anatomy(views)
    part = views.only(places)
    inner = simplest(_relations(part)) or _anatomy(part)
    which = f"only {views_named(places)} of {len(differing)} differ{'s' * (len(places) == 1)}"
    return Description(inner.kind, f"{which}: {inner.text}", inner.share, inner.cases)


def _levels(pixels: Tensor) -> Tensor:
    """Return levels: whole numbers, unless the pixels are between levels by more than bfloat16 rounds."""
    exact = (pixels + 1) * 127.5
    whole = exact.round()
    return whole if float((exact - whole).abs().max()) < levels.OF_ROUNDING else exact


def _of_other_shape(actual: Tensor, expected: Tensor) -> Description:
    for axes in permutations(range(actual.ndim)):
        if actual.permute(axes).shape == expected.shape and actual.permute(axes).equal(expected):
            text = f"the axes are in another order: {list(actual.shape)} instead of {list(expected.shape)}"
            return Description("transposed", text, 1.0, actual.numel())
    count = [len(actual), len(expected)]
    if actual.shape[1:] == expected.shape[1:]:
        source = [_same(one, expected) for one in actual]
        known = [one for one in source if one is not None]
        text = f"{count[0]} views instead of {count[1]}; they are the expected {views_named(known)}"
        if len(known) == len(source):
            return Description("left-out", text, 1.0, actual.numel())
        equal = (
            f"only the expected {views_named(known)} {'is' if len(known) == 1 else 'are'} among them" if known else ""
        )
        size = f"{count[0]} views of {' x '.join(map(str, actual.shape[2:]))} px instead of {count[1]} of the same size"
        return Description("shape", f"{size}; {equal or 'none of them equals an expected view'}", 0.0)
    sides = [" x ".join(map(str, one.shape[2:])) for one in (actual, expected)]
    return Description("shape", f"{count[0]} views of {sides[0]} px instead of {count[1]} of {sides[1]} px", 0.0)


def _same(view: Tensor, views: Tensor) -> int | None:
    return next((place for place, other in enumerate(views) if view.equal(other)), None)


def _unrounded(actual: Tensor, expected: Tensor) -> Description | None:
    """Describe pixels that are the expected ones before they are rounded to bfloat16."""
    if not actual.bfloat16().float().equal(expected):
        return None
    views = Views(actual, expected)
    text = "the pixels are not rounded to bfloat16; all are right otherwise"
    return Description("unrounded", text, max(views.share(_exact(expected)), ENOUGH), actual.numel())


def _truncated(actual: Tensor, expected: Tensor) -> Description | None:
    """Describe pixels that are the expected ones cut to a dtype, not rounded."""
    exact, count = _exact(expected), int((actual != expected).sum())
    for name, dtype in FORMATS.items():
        if actual.equal(truncated(exact, dtype)):
            text = f"{BY_TRUNCATION.format(name)}: each value that differs is the next one towards zero"
            return Description("truncated", text, 1.0, count)
    return None


def _exact(pixels: Tensor) -> Tensor:
    """Return the pixels of a page's levels before they are rounded."""
    return ((pixels + 1) * 127.5).round() / 127.5 - 1


def _relations(views: Views, grid: tuple[int, int] = (1, 1), source: Source | None = None) -> Iterator[Description]:
    """Yield relations, the simplest first."""
    yield from measured(_reordered, views, grid)
    yield from measured(colours.exchanged, views)
    yield from measured(_turned, views)
    yield from measured(_of_single, views, bars.other_bars)
    yield from measured(_of_single, views, bars.covered)
    yield from measured(_constant, views)
    of_level = [*measured(levels.relations, views.actual, views.expected)]
    yield from (one for one in of_level if one.kind != levels.TABLE)
    yield from measured(colours.mixed, views)
    yield from measured(shifts.relations, views.actual, views.expected, grid)
    if source:
        yield from measured(resized, views.actual, views.expected, source)
    yield from (one for one in of_level if one.kind == levels.TABLE)
    yield from measured(spectrum.filtered, views.actual, views.expected)


def _constant(views: Views) -> Description | None:
    """Describe one level that is another one wherever the pixels differ, such as that of the bars."""
    differing = views.apart.abs() > levels.OF_ROUNDING
    own, right = (one[differing] for one in (views.actual, views.expected))
    if len(own) < LEAST_PX or float(own.max() - own.min()) or float(right.max() - right.min()) > levels.OF_ROUNDING:
        return None
    level, instead, count = float(own[0]), float(right[0]), len(own) / views.actual.numel()
    text = (
        f"{count:.1%} of the values are level {level:g} (a value of {level / 127.5 - 1:.3g}) instead of {instead:g} "
        f"({instead / 127.5 - 1:.3g}); all others are right"
    )
    return Description("levels", text, 1.0, len(own))


def _reordered(views: Views, grid: tuple[int, int]) -> Description | None:
    """Describe views in another order, found on the even lines."""
    count = len(views.actual)
    if count < 2:
        return None
    own, right = (one[..., ::2, :].flatten(1) for one in (views.actual, views.expected))
    source = torch.cdist(own, right).argmin(1)
    if source.equal(torch.arange(count)):
        return None
    shown = ", ".join(str(one + 1) for one in source.tolist())
    text = f"the {count} views are in another order: they hold the expected views {shown}"
    columns, rows = grid
    if columns * rows == count and source.equal(torch.arange(count).view(rows, columns).T.flatten()):
        text = f"the {count} views are in another order: column by column instead of row by row"
    share = views.share(views.expected[source], slice(1, None, 2))
    return Description("reordered", text, share, views.actual.numel() // 2)


def _turned(views: Views) -> Iterator[Description]:
    turns = {
        "flipped left to right": views.expected.flip(-1),
        "upside down": views.expected.flip(-2),
        "rotated by 180 degrees": views.expected.flip(-1, -2),
        "transposed (x and y exchanged)": views.expected.mT,
        "rotated by 90 degrees to the left": views.expected.mT.flip(-2),
        "rotated by 90 degrees to the right": views.expected.mT.flip(-1),
        "transposed along the other diagonal": views.expected.mT.flip(-1, -2),
    }
    for words, predicted in turns.items():
        if predicted.shape == views.actual.shape:
            text = f"each view is {words}" if len(views.actual) > 1 else f"the view is {words}"
            yield Description("turned", text, views.share(predicted), views.actual.numel())


def _of_single(views: Views, relation: Callable[[Tensor, Tensor], Description | None]) -> Description | None:
    """Describe a single view by a relation of its bars."""
    return relation(views.actual[0], views.expected[0]) if len(views.actual) == 1 else None


def _anatomy(views: Views) -> Description:
    """Return how much and where two views differ, in levels, and their spectra."""
    apart = views.apart.abs()
    differing = apart > levels.HALF
    parts = [
        f"{float(differing.float().mean()):.1%} of the values differ, by {float(apart[differing].mean()):.3g} levels "
        f"in the mean and {float(apart.max()):.3g} at most"
        if differing.any()
        else f"no value differs by a level, and the largest difference is {float(apart.max()):.2g} levels"
    ]
    single = len(views.actual) == 1
    if single and (around := bars.same_grey_bars(views.actual[0], views.expected[0])) is not None:
        parts.insert(0, around)
    elif (where := _where(differing.any(1).any(0))) is not None:
        parts.append(where)
    if (moved := _quarters(views)) is not None:
        parts.append(moved)
    parts += filter(None, (_signs(views), spectrum.compared(views.actual, views.expected)))
    return Description("anatomy", "; ".join(parts), 0.0, int(differing.sum()))


def _signs(views: Views) -> str:
    """Say that nearly all differences are in one direction; empty if they are not."""
    differing = views.apart[views.apart.abs() > levels.HALF]
    brighter = float((differing > 0).float().mean()) if len(differing) >= LEAST_PX else HALF_OF_ALL
    if min(brighter, 1 - brighter) > FEW:
        return ""
    way, share = ("brighter", brighter) if brighter > HALF_OF_ALL else ("darker", 1 - brighter)
    return f"{way} at {share:.0%} of them"


def _where(differing_HW: Tensor) -> str | None:
    """Say where the pixels are that differ, unless they are everywhere."""
    if not differing_HW.any():
        return None
    height, width = differing_HW.shape
    lines, columns = (differing_HW.any(dim).nonzero().flatten().tolist() for dim in (1, 0))
    box = (lines[0], lines[-1] + 1, columns[0], columns[-1] + 1)
    if box != (0, height, 0, width):
        return f"inside of lines {box[0]} to {box[1] - 1} and columns {box[2]} to {box[3] - 1} of {height} x {width}"
    thickness = next((k for k in range(min(height, width) // 4) if not differing_HW[k, k : width - k].any()), 0)
    inner = differing_HW[thickness : height - thickness, thickness : width - thickness]
    return f"at the rim alone, {thickness} px" if thickness and not inner.any() else None


def _quarters(views: Views) -> str | None:
    """Say by how much the picture is moved at its corners, if not by the same amount: it is stretched."""
    first = int(views.apart.abs().sum(dim=(1, 2, 3)).argmax())
    own, right = views.actual[first].mean(0), views.expected[first].mean(0)
    height, width = (one // 2 for one in own.shape)
    if min(height, width) < LEAST_PX:
        return None
    corners = [(slice(y, y + height), slice(x, x + width)) for y in (0, height) for x in (0, width)]
    if any(float(right[at].std()) < 1 or float(own[at].std()) < 1 for at in corners):
        return None
    found = [spectrum.shift(own[at], right[at]) for at in corners]
    if len({*found}) == 1 or any(max(map(abs, one)) > shifts.MOST_SHIFT_PX for one in found):
        return None
    shown = ", ".join(f"({x:+d}, {y:+d})" for y, x in found)
    return f"its quarters are moved by (x, y) = {shown} px: stretched or of another size"
