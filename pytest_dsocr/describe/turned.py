"""Describe keys that are rotated for other positions than their own.

Shapes: S slots, G key heads, F frequencies of a head.
"""

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import RowPair, named, share

MOST = 1 << 15
"""Largest distance of a position from its own that is looked for."""
LEAST_SLOTS = 2


def describe_turned(pair: RowPair, frequencies: Tensor, prompt: int) -> Description | None:
    """Return the positions for which a layer's wrong keys are rotated; None if no positions give them.

    The first wrong slot gives the number, and all others verify it.

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
    by, first = _shift((own[0] * right[0].conj()).sum(0), angles), int(slots[0])
    position, far = first + by, f"{abs(by):,} {'lower' if by < 0 else 'higher'}"
    ways = {
        f"rotated for positions {far} than their own": torch.full_like(slots, by),
        f"all rotated for position {position:,}" if position else "not rotated": position - slots,
    }
    every = [(_share(pair, right, shifts[:, None] * angles), how) for how, shifts in ways.items() if shifts.all()]
    explained, how = max(every, default=(0.0, ""))
    if explained < ENOUGH:
        return None
    is_tail = len(slots) == len(wrong) - first and first >= prompt
    token = f"from slot {first:,} (new token {first - prompt + 1:,}) on" if is_tail else ""
    which = token or f"in {len(slots):,} of {len(wrong):,} slots ({named('slot', slots.tolist())})"
    return Description("turned", f"{which}, the keys are {how}", explained, len(slots))


def _complex(rows: Tensor, count: int) -> Tensor:
    """Return rows as numbers that a rotation multiplies, ``[S, G, F]``."""
    first, second = rows.double().unflatten(1, (-1, 2, count)).unbind(2)
    return torch.complex(first, second)


def _shift(crossed: Tensor, angles: Tensor) -> int:
    """Return the rotation in whole positions of a slot's ``crossed`` ``[F]``."""
    every = torch.arange(-MOST, MOST + 1)
    scores = (crossed @ torch.polar(torch.ones(()).double(), -angles[:, None] * every)).real
    return int(every[scores.argmax()])


def _share(pair: RowPair, right: Tensor, angles: Tensor) -> float:
    """Return the share of the difference that is explained if the wrong keys are rotated by ``angles`` ``[S, F]``."""
    made = right * torch.polar(torch.ones(()).double(), angles)[:, None]
    predicted = pair.expected.clone()
    predicted[0, pair.not_equal[0]] = torch.cat([made.real, made.imag], -1).flatten(1).to(predicted.dtype)
    return share(pair, predicted)
