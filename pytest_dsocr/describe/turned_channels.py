"""Describe which channels of keys are rotated, and by which frequencies: both are measured.

Shapes: S slots, G key heads, D channels of a head, F pairs of channels that are rotated.
"""

import math

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import RowPair, named, share
from pytest_dsocr.describe.partly import KINDS, PartlyTurned

LEAST_SLOTS = 32
ROUNDING = 0.1
"""Part of a slot's rounding up to which a channel is not rotated: slow ones turn by less than it."""
NEAR = 0.01
"""Difference of the last slot's angle from that of a known frequency up to which it is this one."""


def describe_channels(pair: RowPair, frequencies: Tensor) -> Description | None:
    """Return the channels of a layer's wrong keys that are rotated, with their frequencies; None if no rotation fits.

    Frequencies are measured at the slots 1, 2, 4 and so on, and verified at the others.

    Args:
        pair: keys of both sides ``[1, S, C]``.
        frequencies: those of the right rotation, ``[D / 2]``.
    """
    size, slots = 2 * len(frequencies), pair.expected.shape[1]
    if pair.actual.shape != pair.expected.shape or slots < LEAST_SLOTS or pair.expected.shape[-1] % size:
        return None
    positions, angles = torch.arange(slots), frequencies.cpu().double()
    own, right = (one[0].double().unflatten(1, (-1, size)).transpose(0, 1) for one in (pair.actual, pair.expected))
    by = positions[:, None].float() * frequencies.cpu().float()  # as the engine rounds them
    bare = PartlyTurned(0, size, size).rotate_by(right, -by.double())
    rounding = ROUNDING * pair.noise * bare.square().mean().sqrt()
    turned = ((own - bare).square().mean((0, 1)).sqrt() > rounding).nonzero().flatten().tolist()
    if not turned or len(turned) % 2 or turned[-1] - turned[0] >= len(turned):
        return None
    test = (positions & (positions - 1) != 0)[None]
    for has_neighbours in (False, True):
        how = PartlyTurned(turned[0], turned[-1] + 1, size, has_neighbours=has_neighbours)
        found = _measured(how.pairs(own), how.pairs(bare))
        made = how.rotate_by(bare, positions[:, None] * found).transpose(0, 1).flatten(1).to(pair.expected.dtype)
        if (explained := share(pair, made[None], test)) >= ENOUGH:
            text = f"the keys have {_words(how, found, angles, slots)}"
            return Description("turned", text, explained, int(test.sum()))
    return None


def _measured(own: Tensor, bare: Tensor) -> Tensor:
    """Return the frequencies ``[F]`` by which complex numbers ``[G, S, F]`` are rotated."""
    crossed = (own * bare.conj()).sum(0)
    found = torch.zeros(crossed.shape[1], dtype=torch.float64)
    for slot in (1 << k for k in range(len(crossed).bit_length()) if 1 << k < len(crossed)):
        found += (crossed[slot] * torch.polar(torch.ones_like(found), -slot * found)).angle() / slot
    return found


def _words(how: PartlyTurned, found: Tensor, angles: Tensor, slots: int) -> str:
    bare = [k for k in range(how.size) if not how.first <= k < how.end]
    which = f"{named('channel', range(how.first, how.end))} of a head's {how.size} rotated"
    pairs = ", neighbouring ones as a pair" if how.has_neighbours else ""
    back = ", backwards" if found[0] < 0 else ""
    by = f"{pairs}{back}, by {_by(how, found.abs() if back else found, angles, slots)}"
    others = f", and {named('channel', bare)} not" if bare else ""
    return f"{which}{by}{others}"


def _by(how: PartlyTurned, found: Tensor, angles: Tensor, slots: int) -> str:
    """Say which frequencies were found: known ones, those of another base, or their bounds."""
    for kind in KINDS:
        one = PartlyTurned(how.first, how.end, how.size, kind)
        known = one.chosen(angles)
        factor = float((found * known).sum() / known.square().sum())
        if _is_near(found, factor * known, slots):
            words = "the right frequencies" if len(found) == len(angles) else one.of_frequencies
            return words if _is_near(known, factor * known, slots) else f"{factor:.3g} times {words}"
    places = torch.arange(len(found), dtype=torch.float64)
    slope = float((found * places * found.clamp_min(1e-9).log()).sum() / (found * places.square()).sum())
    if _is_near(found, (slope * places).exp(), slots):
        return f"the frequencies of {2 * len(found)} channels and a base of {math.exp(-slope * len(found)):.3g}"
    return f"frequencies from {float(found.max()):.3g} to {float(found.min()):.3g}"


def _is_near(found: Tensor, other: Tensor, slots: int) -> bool:
    return float((found - other).abs().max()) * slots <= NEAR
