"""Keys that attention sees more than there are, such as padding that is not masked: their number is measured.

Shapes: N heads, P queries, S keys, D channels of a head.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from pytest_dsocr.describe.by_head import OwnHeads
from pytest_dsocr.describe.core import AttentionCore, BiasOf
from pytest_dsocr.describe.pair import TINY, times

WHOLE = 0.05
"""Distance of a number of keys from a whole one that counts as none."""
MOST_ROWS = 16
LEAST_UNIT = 8
"""Smallest power of two that a padded number of keys is a multiple of."""
AddedKey = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Return the score ``[N, P, 1]`` and the value ``[N, 1, D]`` of a key that is added to scores and values."""


def _again(place: int, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return scores[..., [place]], values[..., [place], :]


ADDED: Mapping[str, AddedKey] = {
    "{} of score 0 and value 0": lambda scores, values: (0 * scores[..., :1], 0 * values[..., :1, :]),
    "{} as large as the largest, of value 0": lambda scores, values: (
        scores.amax(-1, keepdim=True),
        0 * values[..., :1, :],
    ),
    "{} of the last key": partial(_again, -1),
    "{} of the first key": partial(_again, 0),
}
"""Keys that may be added, in words with a place for their noun."""


def added_number(scores: Tensor, values: Tensor, own: Tensor, of: AddedKey) -> int:
    """Return how many keys of a kind have been added; 0 if no whole number explains the result.

    Args:
        scores: those of the right keys, ``[N, P, S]`` float64.
        values: ``[N, S, D]`` float64.
        own: the subject's result ``[N, P, D]``.
        of: kind of the keys.
    """
    score, value = of(scores, values)
    most = torch.maximum(scores.amax(-1, keepdim=True), score)
    weights = (scores - most).exp()
    moved = (score - most).exp() * (value - own)
    apart = weights.sum(-1, keepdim=True) * own - weights @ values
    number = float((moved * apart).sum() / moved.square().sum().clamp_min(TINY))
    return max(0, round(number)) if abs(number - round(number)) <= WHOLE else 0


def with_added(scores: Tensor, values: Tensor, of: AddedKey, number: int) -> Tensor:
    """Return attention with a number of keys more, ``[N, P, D]``; the arguments are those of :func:`added_number`."""
    score, value = of(scores, values)
    most = torch.maximum(scores.amax(-1, keepdim=True), score)
    weights, more = (scores - most).exp(), number * (score - most).exp()
    out: Tensor = (weights @ values + more * value) / (weights.sum(-1, keepdim=True) + more)
    return out


def added_words(number: int, words: str) -> str:
    """Say how many terms of a kind the softmax's sum has besides its own."""
    return f"the softmax's sum has {times(number)} more {words.format('term' if number == 1 else 'terms')}"


def added_keys(own: OwnHeads) -> Iterator[tuple[str, AttentionCore]]:
    """Yield attention with more keys, with words."""
    count, rows = own.k.shape[1], own.some(MOST_ROWS)
    scores, values = own.scores(own.wrong, rows).double(), own.v[own.wrong].double()
    for words, of in ADDED.items():
        if number := added_number(scores, values, own.out[own.wrong][:, rows].double(), of):
            unit = max(LEAST_UNIT, 1 << number.bit_length())
            until = "" if (count + number) % unit else f": as many as there are up to a multiple of {unit}"
            yield f"{added_words(number, words)} at {count:,} keys{until}", partial(_attended, of, number)


def _attended(of: AddedKey, number: int, q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    scores = (q @ k.mT) / math.sqrt(q.shape[-1])
    bias = bias_of(q)
    return with_added(scores if bias is None else scores + bias, v, of, number)
