"""Describe keys that are rotated for other positions than their own.

Shapes: S slots, G key heads, F frequencies of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import RowPair, named, share

MOST = 1 << 15
"""Largest distance of a position from its own that is looked for."""
LEAST_SLOTS = 2


def describe_turned(pair: RowPair, frequencies: Tensor, prompt: int) -> Description | None:
    """Return the positions for which a layer's wrong keys are rotated; None if no positions give them.

    A slot has one number to find, and the values of all its heads to verify it.

    Args:
        pair: keys of both sides ``[1, S, C]``.
        frequencies: those of the rotation, ``[F]``.
        prompt: number of the prompt's tokens.
    """
    wrong: Tensor = pair.not_equal[0]
    slots = wrong.nonzero().flatten()
    if len(slots) < LEAST_SLOTS or pair.expected.shape[-1] % (2 * len(frequencies)):
        return None
    own, right = (_complex(one[0, wrong], len(frequencies)) for one in (pair.actual, pair.expected))
    angles = frequencies.cpu().double()
    shifts = _shifts((own * right.conj()).sum(1), angles)
    made = right * torch.polar(torch.ones(()).double(), shifts[:, None] * angles)[:, None]
    predicted = pair.expected.clone()
    predicted[0, wrong] = torch.cat([made.real, made.imag], -1).flatten(1).to(predicted.dtype)
    explained = share(pair, predicted)
    if explained < ENOUGH or not shifts.all():
        return None
    positions, first = slots + shifts, int(slots[0])
    if len(shifts.unique()) == 1:
        by = int(shifts[0])
        how = f"rotated for positions {abs(by):,} {'lower' if by < 0 else 'higher'} than their own"
    elif len(positions.unique()) == 1:
        how = f"all rotated for position {int(positions[0]):,}" if positions[0] else "not rotated"
    else:
        return None
    is_tail = len(slots) == len(wrong) - first and first >= prompt
    token = f"from slot {first:,} (new token {first - prompt + 1:,}) on" if is_tail else ""
    which = token or f"in {len(slots):,} of {len(wrong):,} slots ({named('slot', slots.tolist())})"
    return Description("turned", f"{which}, the keys are {how}", explained, len(slots))


def _complex(rows: Tensor, count: int) -> Tensor:
    """Return rows as numbers that a rotation multiplies, ``[S, G, F]``."""
    first, second = rows.double().unflatten(1, (-1, 2, count)).unbind(2)
    return torch.complex(first, second)


def _shifts(crossed: Tensor, angles: Tensor) -> Tensor:
    """Return the rotation in whole positions that each slot of ``crossed`` ``[S, F]`` has."""
    every = torch.arange(-MOST, MOST + 1)
    scores = torch.cat(
        [
            (part @ torch.polar(torch.ones(()).double(), -angles[:, None] * every)).real.argmax(1)[:, None]
            for part in crossed.split(64)
        ]
    )
    return every[scores[:, 0]]
