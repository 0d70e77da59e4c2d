"""Rows or channels in another order: rolled, turned, exchanged, left out or doubled, found by matching their values.

Shapes: B views, N rows of a view, C channels.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import RowPair, named, share, times
from pytest_dsocr.describe.place import confined

MOST_MATCHED = 4096
"""Number of rows above which only some are matched."""
LEAST_CHANNELS = 8
NEAR = 0.05
"""Distance of matching rows, relative to the distance between unlike ones."""
CLEAR = 0.1
"""Difference that is left of a row, relative to the row, from which on an order does not hold there."""
WHOLE = ("rolled", "transposed", "flipped")
"""Orders with words that hold for every row."""
MOST_SEGMENTS = 6
CLEARLY = 0.8
"""Least share of the moved rows that are in stretches of one length, for words about stretches."""
MOST_OFFSETS = 2


class Order(NamedTuple):
    """Possible origin of the rows of a view."""

    kind: str
    text: str
    source: Tensor
    """Index of the expected row that each row has, ``[N]``; -1 for a row that has none of them."""


def reordered_views(pair: RowPair) -> Description | None:
    """Describe views in another order."""
    count = len(pair.actual)
    if count < 2:
        return None
    flat = replace(pair, actual=pair.actual.flatten(1)[None], expected=pair.expected.flatten(1)[None])
    source = _matched(flat.actual[0], flat.expected[0])
    if source is None or (source < 0).any() or source.equal(torch.arange(count)):
        return None
    shown = ", ".join(str(one + 1) for one in source.tolist())
    text = f"the {count} {pair.item}s are in another order: they hold the expected {pair.item}s {shown}"
    return Description("reordered", text, share(pair, pair.expected[source]), count)


def reordered_rows(pair: RowPair) -> Description | None:
    """Describe rows in another order, the same in each view."""
    if pair.actual.shape[-1] < LEAST_CHANNELS or pair.expected.shape[1] < 2:
        return None
    view = int(pair.apart.norm(dim=(1, 2)).argmax()) if pair.actual.shape == pair.expected.shape else 0
    source = _matched(pair.actual[view], pair.expected[view])
    return None if source is None else _best(pair, _orders(source, pair))


def reordered_channels(pair: RowPair) -> Description | None:
    """Describe channels in another order, the same in every row."""
    actual, expected = (one.flatten(0, 1).T for one in (pair.actual, pair.expected))
    if actual.shape != expected.shape or actual.shape[1] < 2 * LEAST_CHANNELS:
        return None
    turned = RowPair(actual[None], expected[None], "channel", noise=pair.noise)
    return reordered_rows(turned)


def left_out(pair: RowPair) -> Description | None:
    """Describe rows that are left out or doubled, if the number of rows differs."""
    if pair.actual.shape[1] == pair.expected.shape[1] or pair.actual.shape[2] != pair.expected.shape[2]:
        return None
    source = _matched(pair.actual[0], pair.expected[0])
    if source is None or (source == -2).any():
        return None
    own, count = len(source), pair.expected.shape[1]
    known = source[source >= 0].tolist()
    absent = sorted({*range(count)} - {*known})
    doubled = sorted(one for one, times_seen in Counter(known).items() if times_seen > 1)
    strange = (source < 0).nonzero().flatten().tolist()
    parts = [f"without the expected {named(pair.noun, absent)}"] * bool(absent)
    parts += [f"the expected {named(pair.noun, doubled)} more than once"] * bool(doubled)
    parts += [f"{named(pair.noun, strange)} none of the expected ones"] * bool(strange)
    text = f"{own} {pair.noun}s instead of {count}: {', '.join(parts)}"
    odd = _odd(pair)
    found = source >= 0
    apart = (pair.actual[0, found][:, odd] - pair.expected[0, source[found]][:, odd]).norm()
    right = 1 - float(apart / pair.actual[0, found][:, odd].norm().clamp_min(1e-30))
    return Description("left-out", text, max(0.0, right) * float(found.float().mean()), own)


def _odd(pair: RowPair) -> slice:
    return slice(1, None, 2) if pair.actual.shape[-1] >= 2 * LEAST_CHANNELS else slice(None)


def _matched(actual_RC: Tensor, expected_QC: Tensor) -> Tensor | None:
    """Return the expected row that is nearest to each row in the even channels, -1 if none is near.

    Of a large tensor only some rows are matched, and the others are -2. Among equal rows, the one at the most common
    offset counts.
    """
    rows, others = len(actual_RC), len(expected_QC)
    step = -(-rows // MOST_MATCHED)
    asked = torch.arange(0, rows, step)
    even = slice(None, None, 2) if actual_RC.shape[1] >= 2 * LEAST_CHANNELS else slice(None)
    apart = torch.cdist(actual_RC[asked][:, even].double(), expected_QC[:, even].double())
    scale = expected_QC[:, even].double().sub(expected_QC[:, even].double().mean(0)).norm(dim=1).mean()
    if not torch.isfinite(apart).all() or not float(scale):
        return None
    nearest = apart.min(dim=1)
    offsets = (nearest.indices - asked) % others
    near = NEAR * scale
    usual = [offset for offset, _ in Counter(offsets.tolist()).most_common(MOST_OFFSETS + 1)]
    chosen = nearest.indices.clone()
    for offset in reversed([0, *usual]):
        there = (asked + offset) % others
        same = apart[torch.arange(len(asked)), there] <= nearest.values + near * 1e-3
        chosen[same] = there[same]
    chosen[nearest.values > near] = -1
    source = torch.full((rows,), -2)
    source[asked] = chosen
    return source


def _best(pair: RowPair, orders: Iterator[Order]) -> Description | None:
    """Return the first order that explains the difference; else the one that explains most."""
    best: Description | None = None
    odd = _odd(pair)
    seen = replace(pair, actual=pair.actual[..., odd], expected=pair.expected[..., odd])
    for one in orders:
        known = one.source >= 0
        moved = known & (one.source != torch.arange(len(one.source)))
        if not moved.any():
            continue
        predicted = seen.expected.clone()
        predicted[:, known] = seen.expected[:, one.source[known]]
        if one.kind in WHOLE and not _holds_everywhere(seen, predicted):
            continue
        found = Description(one.kind, one.text, share(seen, predicted), int(seen.differing.sum()))
        if found.share >= ENOUGH:
            return found
        best = found if best is None or found.share > best.share else best
    return best


def _holds_everywhere(pair: RowPair, predicted: Tensor) -> bool:
    """Return whether a prediction holds in every row, as the words of a whole order claim."""
    left, size = (pair.actual - predicted).norm(dim=-1), pair.actual.norm(dim=-1)
    return bool((left <= CLEAR * size + pair.noise * size.max()).all())


def _orders(source: Tensor, pair: RowPair) -> Iterator[Order]:
    """Yield orders in which the rows may be, the simplest first."""
    noun, count = pair.noun, len(source)
    places = torch.arange(count)
    known = source >= 0
    offsets = ((source - places) % count)[known]
    if pair.grid:
        yield from _turned(source, pair.grid, noun)
    for offset, _ in Counter(offsets[offsets != 0].tolist()).most_common(MOST_OFFSETS):
        yield Order("rolled", _rolled(offset, count, noun), (places + offset) % count)
    yield Order("flipped", f"the {count} {noun}s are in reverse order", places.flip(0))
    if not (source == -2).any():
        segments = _segments(source)
        moved = (known & (source != places)).nonzero().flatten().tolist()
        if len(segments) <= MOST_SEGMENTS and len(moved) > 2:
            yield Order("shifted", _in_segments(segments, noun), source)
        if len(moved) <= 2 * MOST_SEGMENTS:
            yield Order("exchanged", _exchanged(source, moved, pair), source)
        where = confined(pair) if len({*source[moved].tolist()}) == 1 else None
        if where is not None:
            yield Order("one-row", f"{where.text}; each holds the expected {noun} {int(source[moved[0]])}", source)
        shown = ", ".join(map(str, source[moved[:MOST_SEGMENTS]].tolist()))
        lengths = Counter(last - first + 1 for first, last, offset in segments if offset)
        [(length, often)] = lengths.most_common(1) or [(1, 0)]
        together = f" in stretches of {length}" * (length > 1 and length * often > CLEARLY * len(moved))
        text = f"{len(moved)} of {count} {noun}s are in another order{together}, which begins {shown}"
        yield Order("reordered", text, source)


def _rolled(offset: int, count: int, noun: str) -> str:
    earlier, later = offset, count - offset
    if earlier == 1:
        return f"the first of {count} {noun}s comes last; all others are one {noun} earlier"
    if later == 1:
        return f"the last of {count} {noun}s comes first; all others are one {noun} later"
    if earlier * 2 == count:
        return f"the two halves of {count} {noun}s are exchanged"
    if earlier < later:
        return f"all {count} {noun}s are {earlier} earlier, and the first {earlier} come last"
    return f"all {count} {noun}s are {later} later, and the last {later} come first"


def _turned(source: Tensor, grid: tuple[int, int], noun: str) -> Iterator[Order]:
    """Yield the rows of a plane transposed, flipped or rolled, behind rows that stay in place."""
    height, width = grid
    before = len(source) - height * width
    plane = torch.arange(height * width).view(height, width)
    size = f"the {height} x {width} {noun}s are"
    turns = {
        "transposed": ("transposed", plane.T),
        "flipped left to right": ("flipped", plane.flip(1)),
        "upside down": ("flipped", plane.flip(0)),
        "rotated by 180 degrees": ("flipped", plane.flip(0, 1)),
    }
    rolls = _voted_rolls(source[before:] - before, plane)
    for down, right in rolls:
        ways = [f"{times(abs(n))} {'to the right' if n > 0 else 'to the left'}" for n in (right,) if n]
        ways += [f"{times(abs(n))} {'lower' if n > 0 else 'higher'}" for n in (down,) if n]
        rolled = plane.roll((down, right), (0, 1))
        turns[f"{' and '.join(ways)} in their plane, around its edge"] = ("rolled", rolled)
    for words, (kind, turned) in turns.items():
        if turned.numel() == plane.numel():
            order = torch.cat([torch.arange(before), turned.flatten() + before])
            yield Order(kind, f"{size} {words}", order)


def _voted_rolls(source: Tensor, plane: Tensor) -> list[tuple[int, int]]:
    height, width = plane.shape
    places = plane.flatten()[source >= 0]
    found = source[source >= 0]
    down = (places // width - found // width + height // 2) % height - height // 2
    right = (places % width - found % width + width // 2) % width - width // 2
    votes = Counter(zip(down.tolist(), right.tolist(), strict=True))
    return [roll for roll, _ in votes.most_common(MOST_OFFSETS) if roll != (0, 0)]


def _segments(source: Tensor) -> list[tuple[int, int, int | None]]:
    """Return first row, last row and offset of stretches that moved together; the offset is None if unmatched."""
    found: list[tuple[int, int, int | None]] = []
    for place, one in enumerate(source.tolist()):
        offset = None if one < 0 else one - place
        if found and found[-1][2] == offset:
            found[-1] = (found[-1][0], place, offset)
        else:
            found.append((place, place, offset))
    return found


def _in_segments(segments: list[tuple[int, int, int | None]], noun: str) -> str:
    parts = []
    for first, last, offset in segments:
        if offset == 0:
            continue
        which = f"{noun} {first} holds" if first == last else f"{noun}s {first} to {last} hold"
        if offset is None:
            parts.append(f"{which} none of the expected {noun}s")
        elif first == last:
            parts.append(f"{which} the expected {noun} {first + offset}")
        else:
            far = f"{times(abs(offset))} {'later' if offset > 0 else 'earlier'}"
            parts.append(f"{which} the expected {noun}s {far} ({first + offset} to {last + offset})")
    others = "; all others are in place" * any(offset == 0 for *_, offset in segments)
    return "; ".join(parts) + others


def _exchanged(source: Tensor, moved: list[int], pair: RowPair) -> str:
    noun = pair.noun
    if len(moved) > 1 and len({*source[moved].tolist()}) == 1:
        return f"{named(noun, moved)} each hold the expected {noun} {int(source[moved[0]])}; all others are in place"
    if len(moved) == 2 and source[moved].tolist() == moved[::-1]:
        return f"{noun}s {moved[0]} and {moved[1]} are exchanged; all others are in place"
    sources = [(one, int(source[one])) for one in moved[:MOST_SEGMENTS]]
    shown = ", ".join(
        f"{noun} {one}{pair.meaning(one)} holds the expected {noun} {other}{pair.meaning(other)}"
        for one, other in sources
    )
    return f"{shown}; all others are in place"
