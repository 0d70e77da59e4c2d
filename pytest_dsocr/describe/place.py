"""Place of a difference: views, rows, channels or stretches of a plane, and its growth from row to row.

Shapes: B views, N rows of a view, C channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.base.words import ordinal
from pytest_dsocr.describe.description import ENOUGH
from pytest_dsocr.describe.pair import DIFFER, ONLY, RowPair, confined_to, named, ranges, views_named

MOST_ROWS = 0.6
"""Share of the rows up to which a difference is confined to them."""
MOST_CHANNELS = 1 / 8
LEAST_PERIOD = 2
GROWS = 0.9
"""Rank correlation with the position from which on a difference grows."""
LEAST_ROWS = 16
MOST_RIGHT = 3
"""Number of right rows up to which they are named."""


class Confinement(NamedTuple):
    """Some rows of each view, in words."""

    text: str
    rows: Tensor
    """Mask ``[N]``."""
    is_pattern: bool = True
    """Whether the words say which rows they are, and not only how many."""


def confined(pair: RowPair, verbs: tuple[str, str] = DIFFER) -> Confinement | None:
    """Return the rows that differ, if most rows of each view do not; ``verbs`` say so of one and of several."""
    rows = pair.differing.any(0)
    count, every = int(rows.sum()), len(rows)
    if not 0 < count <= MOST_ROWS * every:
        return None
    found = rows.nonzero().flatten().tolist()
    named = next(_named(rows, pair), None)
    which = f"{count if count > 1 else 'one'} of {every} {pair.noun}s"
    within = next((f"inside of {name}, " for name, mask in pair.places.items() if not (rows & ~mask).any()), "")
    where = named or f"{within}{ranges(found)}"
    text = confined_to(pair, rows.expand_as(pair.differing), which, verbs)
    return Confinement(f"{text}: {where}", rows, named is not None) if text else None


def views(pair: RowPair) -> tuple[str, list[int]] | None:
    """Return the views that differ, in words and as places, if others do not."""
    views_differ = pair.differing.any(1)
    found: list[int] = views_differ.nonzero().flatten().tolist()
    if not 0 < len(found) < len(views_differ):
        return None
    inside = views_differ[:, None].expand_as(pair.differing)
    text = confined_to(pair, inside, f"{views_named(found, pair.item)} of {len(views_differ)}")
    is_some = text.startswith(ONLY) or len(found) <= MOST_ROWS * len(views_differ)
    return (text, found) if text and is_some else None


def channels(pair: RowPair) -> tuple[str, Tensor] | None:
    """Return the few channels with nearly all of the difference, found on even rows and verified on odd ones."""
    apart = pair.apart.flatten(0, 1).pow(2)
    if len(apart) < 2 or apart.shape[1] < 2 / MOST_CHANNELS:
        return None
    energy = apart[::2].sum(0)
    most = int(MOST_CHANNELS * len(energy))
    order = energy.argsort(descending=True)[:most]
    whole = energy[order].cumsum(0) / energy.sum().clamp_min(1e-60)
    count = int((whole < 0.995).sum()) + 1
    if count > most:
        return None
    chosen = order[:count].sort().values
    verified = float(apart[1::2][:, chosen].sum() / apart[1::2].sum().clamp_min(1e-60))
    if 1 - max(0.0, 1 - verified) ** 0.5 < ENOUGH:
        return None
    mask = torch.zeros(len(energy), dtype=torch.bool)
    mask[chosen] = True
    which = f"{named('channel', chosen.tolist())} of {len(energy)}"
    size = pair.noise * pair.expected.flatten(0, 1).norm(dim=1)
    if (apart[:, ~mask].sum(1).sqrt() > size).any():
        return f"nearly all of the difference is in {which}", mask
    return f"only {which} differ{'s' * (count == 1)}", mask


def _named(rows: Tensor, pair: RowPair) -> Iterator[str]:
    """Yield words that name exactly these rows, the simplest first."""
    found, every = rows.nonzero().flatten().tolist(), len(rows)
    if len(found) == 1:
        yield next((name for name, mask in pair.places.items() if mask.equal(rows)), _one(found[0], every))
        return
    yield from (name for name, mask in pair.places.items() if mask.equal(rows))
    first, last = found[0], found[-1]
    if last - first + 1 == len(found):
        if last == every - 1:
            yield f"those from {first} on"
        else:
            yield f"{'the first ' + str(len(found)) if first == 0 else f'{first} to {last}'}"
        return
    if pair.grid:
        yield from _in_plane(rows, pair.grid)
    period = gcd(*(one - first for one in found))
    if period >= LEAST_PERIOD and len(found) >= 3 and found == [*range(first, every, period)]:
        yield f"every {'second' if period == 2 else ordinal(period)}, from {first} on"


def _one(place: int, every: int) -> str:
    return {0: "the first", every - 1: "the last"}.get(place, f"number {place}")


def _in_plane(rows: Tensor, grid: tuple[int, int]) -> Iterator[str]:
    height, width = grid
    if rows[: len(rows) - height * width].any():
        return
    plane = rows[len(rows) - height * width :].view(height, width)
    lines, columns = (plane.any(dim).nonzero().flatten().tolist() for dim in (1, 0))
    inside = torch.zeros_like(plane)
    inside[lines[0] : lines[-1] + 1, columns[0] : columns[-1] + 1] = True
    if plane.equal(inside):
        whole = (len(lines) == height, len(columns) == width)
        at = [f"{named('line', lines)} of {height}"] * (not whole[0])
        at += [f"{named('column', columns)} of {width}"] * (not whole[1])
        yield " and ".join(at)
    rim = torch.ones_like(plane)
    rim[1:-1, 1:-1] = False
    if plane.equal(rim):
        yield f"the rim of the {height} x {width} plane"
    for dim, name, size in ((0, "column", width), (1, "line", height)):
        line = plane.all(dim).nonzero().flatten()
        if len(line) and int(plane.sum()) == len(line) * plane.shape[dim]:
            yield f"{named(name, line.tolist())} of {size}"


def anatomy(pair: RowPair) -> str:
    """Return where and how much two tensors differ, in words."""
    rows, every = pair.not_equal, pair.not_equal.numel()
    size = pair.apart.norm(dim=-1) / pair.expected.norm(dim=-1).clamp_min(1e-30)
    view, row = divmod(int(pair.apart.norm(dim=-1).argmax()), rows.shape[1])
    of_view = f" of view {view + 1}" if len(rows) > 1 else ""
    parts = [
        f"relative error {pair.error:.2g}",
        f"{int(rows.sum())} of {every} {pair.noun}s differ, by {float(size[rows].median()):.2g} in the median",
        f"the largest is at {pair.noun} {row}{of_view}",
    ]
    right = (~rows[view]).nonzero().flatten().tolist()
    if 0 < len(right) <= MOST_RIGHT < rows.shape[1]:
        parts.append(f"only {named(pair.noun, right)} {'is' if len(right) == 1 else 'are'} right{of_view}")
    if (trend := _trend(size)) is not None:
        parts.append(trend)
    return "; ".join(parts)


def _trend(size_BN: Tensor) -> str | None:
    """Say whether differences grow or shrink from row to row."""
    size = size_BN.mean(0)
    if len(size) < LEAST_ROWS or not (size > 0).any():
        return None
    ranks = size.argsort().argsort().double()
    places = torch.arange(len(size)).double()
    correlation = float(torch.corrcoef(torch.stack([ranks, places]))[0, 1])
    if abs(correlation) < GROWS:
        return None
    tenth = max(1, len(size) // 10)
    low, high = float(size[:tenth].mean()), float(size[-tenth:].mean())
    way = "grows" if correlation > 0 else "shrinks"
    return f"it {way} with the position, from {low:.2g} to {high:.2g}"
