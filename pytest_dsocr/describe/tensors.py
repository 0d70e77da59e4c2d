"""Describe how a tensor of the subject differs from the expected one, by the simplest relation that explains it."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from pytest_dsocr.describe import order, place, scale
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.measured import measured
from pytest_dsocr.describe.pair import RowPair, named, share, simplest

LEAST_ROWS = 4
"""Number of rows from which on their own values may be described, if others are right."""

EQUAL = 0.01
"""Distance of equal rows, relative to the row."""
EARLIER_PAGE = "earlier-page"
"""Kind of a description of rows that are those of a page which was read before."""


def describe_tensor(pair: RowPair) -> Description | None:
    """Return the simplest relation that explains the difference, or else where it is; None if nothing differs.

    Relations are tried in the order of the numbers that they need. Each is verified on rows or channels that it was
    not fitted to.
    """
    if (spoilt := _not_finite(pair)) is not None:
        return spoilt
    if pair.actual.shape != pair.expected.shape:
        return _of_other_shape(pair)
    if pair.actual.equal(pair.expected):
        return None
    return simplest(_relations(pair)) or Description("anatomy", place.anatomy(pair), 0.0, int(pair.differing.sum()))


def of_earlier(pair: RowPair, earlier: Tensor, page: str) -> Description | None:
    """Describe rows that are those of a page which was read before; None if no row is.

    Rows are found by every second channel, and verified by the others.

    Args:
        pair: both sides' tensors.
        earlier: right tensor of the other page ``[B, N, C]``; it may have other numbers of views and rows.
        page: its name.
    """
    expected = pair.expected.clone()
    views, rows = (min(one, other) for one, other in zip(expected.shape[:2], earlier.shape[:2], strict=True))
    if earlier.shape[2] != expected.shape[2]:
        return None
    expected[:views, :rows] = earlier[:views, :rows]
    even, odd = slice(None, None, 2), slice(1, None, 2)
    apart, size = ((pair.actual - one)[..., even].norm(dim=-1) for one in (expected, torch.zeros_like(expected)))
    near = apart <= EQUAL * size
    same = pair.differing & near
    if not same.any():
        return _one_row(pair, earlier, page)
    predicted = expected.where(same[..., None], pair.expected)
    seen = replace(pair, actual=pair.actual[..., odd], expected=pair.expected[..., odd])
    found = same.any(0).nonzero().flatten().tolist()
    whole = range(found[0], found[-1] + 1)
    if bool(near[:, whole].all()):  # rows in between are the same on both pages
        found = [*whole]
    which = f"every {pair.noun} is that" if same.all() else f"{named(pair.noun, found)} are those"
    text = f"{which} of {page}, which was read before"
    return Description(EARLIER_PAGE, text, share(seen, predicted[..., odd]), int(same.sum()))


def _one_row(pair: RowPair, earlier: Tensor, page: str) -> Description | None:
    """Describe rows that are all one row of another page, at any place there."""
    rows, where = pair.actual[pair.differing], place.confined(pair)
    if len(rows) < LEAST_ROWS or where is None:
        return None
    even, odd = slice(None, None, 2), slice(1, None, 2)
    flat = earlier.flatten(0, 1)
    source = int((flat[:, even] - rows[0, even]).norm(dim=-1).argmin())
    predicted = pair.expected.clone()
    predicted[pair.differing] = flat[source]
    seen = replace(pair, actual=pair.actual[..., odd], expected=pair.expected[..., odd])
    text = f"{where.text}; each is {pair.noun} {source % earlier.shape[1]} of {page}, which was read before"
    return Description(EARLIER_PAGE, text, share(seen, predicted[..., odd]), len(rows))


def _relations(pair: RowPair) -> Iterator[Description]:
    """Yield relations from the simplest on."""
    for relation in scale.ONE_NUMBER:
        yield from measured(relation, pair)
    yield from measured(order.reordered_views, pair)
    yield from measured(order.reordered_rows, pair)
    yield from measured(_of_views, pair)
    yield from measured(_of_rows, pair)
    yield from measured(_of_channels, pair)
    for relation in scale.MANY_NUMBERS:
        yield from measured(relation, pair)
    yield from measured(order.reordered_channels, pair)


def _of_views(pair: RowPair) -> Description | None:
    """Describe the views that differ, if others are right."""
    if (seen := place.views(pair)) is None:
        return None
    where, found = seen
    given = None if pair.given is None else pair.given[found]
    part = replace(pair, actual=pair.actual[found], expected=pair.expected[found], given=given)
    return _inside(where, simplest(_relations(part)), int(pair.differing.sum()), _energy(pair, part))


def _of_rows(pair: RowPair) -> Description | None:
    """Describe the rows that differ, if most are right."""
    if (found := place.confined(pair)) is None:
        return None
    part = pair.only(found.rows)
    inner = simplest(_inner(part))
    if inner is None and not found.is_pattern:
        return None
    return _inside(found.text, inner, int(pair.differing.sum()), _energy(pair, part))


def _inner(part: RowPair) -> Iterator[Description]:
    """Yield relations of a few rows or channels."""
    for relation in scale.ONE_NUMBER:
        yield from measured(relation, part)
    if part.actual.shape[1] >= LEAST_ROWS:
        yield from measured(scale.of_channels, part)
        yield from measured(scale.of_rows, part)


def _of_channels(pair: RowPair) -> Description | None:
    """Describe the channels that differ, if most are right."""
    if (found := place.channels(pair)) is None:
        return None
    text, mask = found
    part = replace(pair, actual=pair.actual[..., mask], expected=pair.expected[..., mask], given=None)
    return _inside(text, simplest(_inner(part)), int(pair.differing.sum()), _energy(pair, part))


def _inside(where: str, inner: Description | None, cases: int, inside: float) -> Description:
    """Join where a difference is, with its share ``inside``, and what it is there."""
    if inner is None:
        return Description("confined", where, inside, cases)
    return replace(inner, text=f"{where}; there {inner.text}")


def _energy(pair: RowPair, part: RowPair) -> float:
    """Return the share of the difference that is inside of a part."""
    whole, inside = (float(one.apart.norm()) for one in (pair, part))
    return 1 - math.sqrt(max(0.0, 1 - (inside / whole) ** 2))


def _of_other_shape(pair: RowPair) -> Description | None:
    if len(pair.actual) == len(pair.expected) and (found := order.left_out(pair)) is not None:
        return found if found.share >= ENOUGH else replace(found, kind="shape", share=0.0)
    shapes = [" x ".join(map(str, one.shape)) for one in (pair.actual, pair.expected)]
    return Description("shape", f"{shapes[0]} values instead of {shapes[1]}", 0.0)


def _not_finite(pair: RowPair) -> Description | None:
    """Describe NaN and infinite values by their rows."""
    spoilt = ~torch.isfinite(pair.actual)
    if not spoilt.any() or not torch.isfinite(pair.expected).all():
        return None
    rows = spoilt.any(-1).any(0)
    found = rows.nonzero().flatten().tolist()
    text = f"{int(spoilt.sum())} values are NaN or infinite, at {named(pair.noun, found)} of {len(rows)}"
    return Description("not-finite", text, 1.0, int(spoilt.sum()))
