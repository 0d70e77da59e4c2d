"""Values that are the expected ones times a factor, plus an offset, rounded, or changed along few directions.

Shapes: B views, N rows of a view, C channels, R rows of all views.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.pair import RowPair, halves, named, share, views_named
from pytest_dsocr.describe.rounding import BY_TRUNCATION, FORMATS, FORMS, Form
from pytest_dsocr.describe.rounding import truncated as cut

LEAST_ROWS = 16
"""Number of rows from which on one half of them says something about the other."""
MOST_RANK = 4
MOST_ROWS = 512
"""Number of rows that directions are found from."""
ROUND = 0.995
"""Share of the values on a grid from which on all are taken to be on it."""
ON_GRID = 1e-6
"""Distance from a rounded value that counts as none, relative to the value."""
NEXT = 1 - 2**-12
"""Factor that moves a value of a dtype of 16 bits by less than its next one towards zero."""
NOTHING = 1e-3
"""Factor of an update that counts as none."""


def zero(pair: RowPair) -> Iterator[Description | None]:
    """Yield descriptions of values, rows or channels that are zero."""
    least = pair.noise * float(pair.expected.abs().max())
    actual = pair.actual.masked_fill(pair.actual.abs() < least, 0)
    if not actual.any():
        yield _of(pair, "zero", "every value is zero", torch.zeros_like(actual))
        return
    for axes, noun in (((0, 1), "channel"), ((0, 2), pair.noun), ((1, 2), pair.item)):
        empty, there = (~one.abs().amax(axes, keepdim=True).bool() for one in (actual, pair.expected))
        found = empty & ~there
        if found.any():
            places = found.flatten().nonzero().flatten().tolist()
            which = views_named(places, noun) if noun == pair.item else named(noun, places)
            place = next((name for name, mask in pair.places.items() if mask.equal(found.flatten())), "")
            verb = "is" if int(found.sum()) == 1 else "are"
            text = f"{which} of {found.numel()}{f', {place},' if place else ''} {verb} zero"
            yield _of(pair, "zero", text, pair.expected.masked_fill(found, 0))


def of_all(pair: RowPair) -> Iterator[Description | None]:
    """Yield one factor, one offset, and both."""
    fit, test = halves(pair.actual.shape[:2])
    if not (fit.any() and test.any()):  # a single row: fit on half of its channels
        yield from _of_one_row(pair)
        return
    a, e = pair.actual[fit], pair.expected[fit]
    factor = _factor(a, e)
    if f"{factor:.4g}" != "1":
        yield _of(pair, "scaled", _times(factor), pair.expected * factor, test)
    offset = float((a - e).mean())
    yield _of(pair, "offset", _plus(offset), pair.expected + offset, test)
    slope, level = _line(a.flatten(), e.flatten())
    text = f"every value is the expected one times {slope:.4g}, {_signed(level)}"
    yield _of(pair, "scaled", text, pair.expected * slope + level, test)


def _of_one_row(pair: RowPair) -> Iterator[Description | None]:
    flat = RowPair(pair.actual.reshape(1, -1, 1), pair.expected.reshape(1, -1, 1), "value", noise=0.0)
    if flat.actual.shape[1] >= LEAST_ROWS:
        yield from of_all(flat)


def of_update(pair: RowPair) -> Iterator[Description | None]:
    """Yield a factor of all that a block adds to its input; 0 leaves the input as it is."""
    if pair.given is None or pair.given.shape != pair.expected.shape:
        return
    fit, test = halves(pair.actual.shape[:2])
    own, right = pair.actual - pair.given, pair.expected - pair.given
    if not fit.any():
        return
    factor = _factor(own[fit], right[fit])
    text = "the block returns its input" if abs(factor) < NOTHING else f"the block adds {factor:.4g} times its update"
    yield _of(pair, "update", text, pair.given + factor * right, test)
    without = _factor(pair.actual[fit], right[fit])
    if abs(without - 1) < NOTHING:
        yield _of(pair, "update", "the block's input is not added to its update", right, test)


def of_channels(pair: RowPair) -> Iterator[Description | None]:
    """Yield a vector that is added to every row, a factor of each channel, and both."""
    fit, test = halves(pair.actual.shape[:2])
    if min(int(fit.sum()), int(test.sum())) < LEAST_ROWS // 2:
        return
    a, e = pair.actual[fit], pair.expected[fit]
    vector = (a - e).mean(0)
    words = f"one vector is added to every {pair.noun} (norm {float(vector.norm()):.3g})"
    yield _of(pair, "vector", words, pair.expected + vector, test)
    factors = (a * e).sum(0) / (e * e).sum(0).clamp_min(1e-30)
    words = f"each channel has a factor of its own, {_between(factors)}"
    yield _of(pair, "scaled-channels", words, pair.expected * factors, test)
    mean_a, mean_e = a.mean(0), e.mean(0)
    slopes = ((a - mean_a) * (e - mean_e)).sum(0) / (e - mean_e).pow(2).sum(0).clamp_min(1e-30)
    words = f"each channel has a factor and an offset of its own, {_between(slopes)}"
    yield _of(pair, "scaled-channels", words, (pair.expected - mean_e) * slopes + mean_a, test)


def of_rows(pair: RowPair) -> Iterator[Description | None]:
    """Yield a factor of each row, fitted on half of the channels, and a value that is added to all its channels."""
    channels = pair.actual.shape[-1]
    if channels < LEAST_ROWS:
        return
    fit, test = (torch.nonzero(one).flatten() for one in halves((channels,)))
    a, e = pair.actual[..., fit], pair.expected[..., fit]
    factors = (a * e).sum(-1, keepdim=True) / (e * e).sum(-1, keepdim=True).clamp_min(1e-30)
    seen = RowPair(pair.actual[..., test], pair.expected[..., test], pair.noun, noise=pair.noise)
    words = f"each {pair.noun} has a factor of its own, {_between(factors)}"
    yield _of(seen, "scaled-rows", words, seen.expected * factors)
    offsets = (a - e).mean(-1, keepdim=True)
    words = f"each {pair.noun} has a value of its own added to all channels, {_between(offsets)}"
    yield _of(seen, "offset-rows", words, seen.expected + offsets)


def rounded(pair: RowPair) -> Iterator[Description | None]:
    """Yield forms with fewer bits that the subject's values are rounded to, and the expected ones are not."""
    for words, form in FORMS.items():
        of_channels = [("row", "channel")] * words.endswith("row")
        for old, new in (("row", "row"), *of_channels):
            made = form if old == new else partial(_turned, form)
            if _on(pair.actual, made) >= ROUND > _on(pair.expected, made):
                text = f"the values are rounded to {words.replace(old, new)}"
                yield _of(pair, "rounded", text, made(pair.expected))


def truncated(pair: RowPair) -> Iterator[Description | None]:
    """Yield the dtype of both sides' values if the subject's are the next ones towards zero wherever they differ."""
    differing = pair.actual != pair.expected
    for name, dtype in FORMATS.items():
        inner = torch.where(differing, cut(pair.expected * NEXT, dtype), pair.expected)
        if (
            int(differing.sum()) >= LEAST_ROWS
            and pair.expected.to(dtype).float().equal(pair.expected)
            and float((inner == pair.actual)[differing].float().mean()) >= ROUND
        ):
            text = f"{BY_TRUNCATION.format(name)}: each value that differs is the next one towards zero"
            yield _of(pair, "truncated", text, inner)


def _turned(form: Form, values: Tensor) -> Tensor:
    return form(values.flatten(0, 1).T).T.view_as(values)


def _on(values: Tensor, form: Form) -> float:
    return float(((form(values) - values).abs() <= ON_GRID * values.abs()).float().mean())


def low_rank(pair: RowPair) -> Iterator[Description | None]:
    """Yield the least rank of the difference: directions from half of the rows, verified on the others."""
    fit, test = halves(pair.actual.shape[:2])
    apart, channels = pair.apart, pair.actual.shape[-1]
    most = min(MOST_RANK, channels // 16, int(fit.sum()) // 8)
    if most < 1:
        return
    some = apart[fit][:: max(1, int(fit.sum()) // MOST_ROWS)]
    directions = torch.linalg.svd(some.double(), full_matrices=False).Vh.float()
    for rank in range(1, most + 1):
        basis = directions[:rank]
        along = "one direction" if rank == 1 else f"{rank} directions"
        text = f"the difference lies along {along} of {channels} channels, in every {pair.noun}"
        yield _of(pair, "low-rank", text, pair.expected + apart @ basis.T @ basis, test)


def _of(pair: RowPair, kind: str, text: str, predicted: Tensor, rows: Tensor | None = None) -> Description:
    counted = pair.differing if rows is None else pair.differing & rows
    return Description(kind, text, share(pair, predicted, rows), int(counted.sum()))


def _factor(actual: Tensor, expected: Tensor) -> float:
    return float((actual * expected).sum() / expected.pow(2).sum().clamp_min(1e-30))


def _line(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Return slope and level of the line through the values."""
    mean_a, mean_e = actual.mean(), expected.mean()
    slope = ((actual - mean_a) * (expected - mean_e)).sum() / (expected - mean_e).pow(2).sum().clamp_min(1e-30)
    return float(slope), float(mean_a - slope * mean_e)


def _times(factor: float) -> str:
    return f"every value is the expected one times {factor:.4g}"


def _plus(offset: float) -> str:
    return f"every value is the expected one {_signed(offset)}"


def _signed(value: float) -> str:
    return f"{'plus' if value >= 0 else 'minus'} {abs(value):.3g}"


def _between(values: Tensor) -> str:
    low, high = (float(one) for one in torch.quantile(values.flatten()[:100_000].float(), torch.tensor([0.05, 0.95])))
    if (one := f"{low:.3g}") == f"{high:.3g}":
        return f"{one} but for up to {max(abs(low - float(one)), abs(high - float(one))):.1e}"
    return f"from {low:.3g} to {high:.3g}"


RowRelation = Callable[[RowPair], Iterator[Description | None]]
ONE_NUMBER: tuple[RowRelation, ...] = (zero, of_all, of_update)
MANY_NUMBERS: tuple[RowRelation, ...] = (truncated, of_channels, of_rows, rounded, low_rank)
