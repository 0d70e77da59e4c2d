"""Describe the attention of steps from its queries, keys and values: the keys that a step does not see, or another sum.

Shapes: N heads, S keys, D channels of a head.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pytest_dsocr.describe.added import ADDED, AddedKey, added_number, added_words, with_added
from pytest_dsocr.describe.core import AttentionCore, cores
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.nearest_factor import coarse, refined
from pytest_dsocr.describe.pair import EXACT, TINY
from pytest_dsocr.describe.score_factor import factor_of_scores

MOST_FIRST = 128
"""Largest number of first keys that a step may see besides its last ones."""
PARTS = tuple(1 << k for k in range(4, 12))
"""Numbers of keys of a part that are tried."""
MOST_FACTOR, TRIED = 3.5, 57
"""Largest factor of scores that is looked for, as a power of two, and number of factors up to it and its inverse."""
REFINED = 40
"""Number of steps to the best factor near the best of those."""
NEARLY, ROUNDED = 3, 1e-4
"""Factor of the smallest error, and share of the difference, up to which keys explain it as well as the best ones."""


class StepAttention(NamedTuple):
    """Attention of one step in a layer."""

    query: Tensor
    """``[N, D]``."""
    keys: Tensor
    """``[N, S, D]``."""
    values: Tensor
    own: Tensor
    """The subject's result, ``[N, D]``."""

    @property
    def scores(self) -> Tensor:
        """Scores of the keys, ``[N, S]`` float64."""
        found: Tensor = (self.keys @ self.query[..., None])[..., 0].double() / math.sqrt(self.query.shape[-1])
        return found

    @property
    def right(self) -> Tensor:
        """The right result."""
        return (self.scores.softmax(-1)[:, None] @ self.values.double())[:, 0]

    @property
    def error(self) -> float:
        """Relative error of the subject's result."""
        return float((self.own - self.right).norm() / self.right.norm().clamp_min(TINY))

    def share(self, made: Tensor) -> float:
        """Return the share of the difference that another result explains."""
        before = (self.own - self.right).norm().clamp_min(TINY)
        return max(0.0, 1 - float((self.own - made).norm() / before))


OtherAttention = Callable[[StepAttention], Tensor]


def describe_attended(steps: Sequence[StepAttention]) -> Description | None:
    """Return the simplest other attention that explains the wrong steps; None if none does.

    It is found at the last step, and verified at the first one and the one in the middle.
    """
    if not steps:
        return None
    last, *others = [steps[k] for k in dict.fromkeys((len(steps) - 1, 0, len(steps) // 2))]
    for words, relation in _relations(last):
        explained = last.share(relation(last))
        if explained >= ENOUGH and (least := min((one.share(relation(one)) for one in others), default=1.0)) >= ENOUGH:
            return Description("attended", words, min(explained, least), 1 + len(others))
    return None


def _relations(last: StepAttention) -> Iterator[tuple[str, OtherAttention]]:
    """Yield relations that explain the last step, in words."""
    every = last.keys.shape[1]
    if (hidden := _hidden(last)) is not None:
        first, end = hidden
        if end < every:
            seen = f"{_keys('first', first)} and " if first else "only "
            words = f"a step sees {seen}{_keys('last', every - end)} of all"
            yield words, partial(_without, after=first, last=every - end)
        else:
            words = f"a step does not see {_keys('last', end - first)}"
            yield words, partial(_without, after=first - every)
        yield f"keys {first:,} to {end - 1:,} are not seen", partial(_without, after=first, end=end)
    yield from _more(last)
    factor = _factor(last)
    yield factor_of_scores(factor, last.query.shape[-1]), partial(_scaled, factor=factor)
    for size in PARTS:
        if size < every:
            words = f"the keys are taken in parts of {size}, which are joined without the difference of their maxima"
            yield words, partial(_in_parts, size=size)
    yield from ((words, partial(_by, core)) for words, core in cores(is_causal=True))


def _more(last: StepAttention) -> Iterator[tuple[str, OtherAttention]]:
    """Yield attention to keys that are added to the last step's, of which the number is measured."""
    every = last.keys.shape[1]
    for words, of in ADDED.items():
        number = added_number(last.scores[:, None], last.values.double(), last.own[:, None], of)
        if not number:
            continue
        terms = added_words(number, words)
        yield terms, partial(_with, of, added=number)
        for size in PARTS:
            if -every % size == number:
                text = f"{terms} at {every:,} keys: as many as there are up to a multiple of {size}"
                yield text, partial(_with, of, unit=size)
        text = f"{terms} at {every:,} keys: as many as there are up to {every + number:,} keys"
        yield text, partial(_with, of, most=every + number)


def _with(of: AddedKey, step: StepAttention, *, added: int = 0, unit: int = 1, most: int = 0) -> Tensor:
    """Return attention to more keys: a number of them, those up to a multiple of a unit, or up to a number of all."""
    keys = step.keys.shape[1]
    number = added + -keys % unit + max(0, most - keys)
    return with_added(step.scores[:, None], step.values.double(), of, number)[:, 0]


def _keys(which: str, number: int) -> str:
    return f"the {which} key" if number == 1 else f"the {which} {number:,} keys"


def _by(core: AttentionCore, step: StepAttention) -> Tensor:
    """Return another computation of attention; the right one if it takes no such shapes."""
    with suppress(RuntimeError, ValueError):
        made = core(step.query[None, :, None], step.keys[None], step.values[None], lambda _: None)[0, :, 0].double()
        if made.shape == step.own.shape and torch.isfinite(made).all():
            return made
    return step.right


def _hidden(step: StepAttention) -> tuple[int, int] | None:
    """Return the keys, from the first to the one after the last, without which attention gives the subject's result."""
    weights = (step.scores - step.scores.amax(-1, keepdim=True)).exp()
    sums = pad(weights.cumsum(1), (1, 0))
    parts = pad((weights[..., None] * step.values.double()).cumsum(1), (0, 0, 1, 0))
    every, before = weights.shape[1], (step.own - step.right).norm().clamp_min(TINY)
    ends, left = torch.arange(every + 1), torch.full((every, every + 1), torch.inf)
    for first in range(every):
        after = ends[first + 1 :] if first <= MOST_FIRST else ends[-1:]
        seen = sums[:, -1:] - sums[:, after] + sums[:, first : first + 1]
        made = parts[:, -1:] - parts[:, after] + parts[:, first : first + 1]
        error = made / seen.clamp_min(TINY)[..., None] - step.own[:, None]
        left[first, after] = (error.norm(dim=(0, 2)) / before).float()
    best = float(left.min())
    if best > 1 - EXACT:
        return None
    first, end = (left <= max(NEARLY * best, ROUNDED)).nonzero()[0].tolist()
    return first, end


def _factor(step: StepAttention) -> float:
    """Return the factor of the scores that comes nearest to the subject's result."""

    def nearness(factor: float) -> float:
        return -float((step.own - _scaled(step, factor)).norm())

    _, best = coarse(nearness, torch.linspace(-MOST_FACTOR, MOST_FACTOR, TRIED).tolist())
    return refined(nearness, best, 2 * MOST_FACTOR / (TRIED - 1), REFINED)


def _scaled(step: StepAttention, factor: float) -> Tensor:
    """Return attention with its scores multiplied by a factor."""
    return ((factor * step.scores).softmax(-1)[:, None] @ step.values.double())[:, 0]


def _without(step: StepAttention, after: int, end: int | None = None, last: int = 0) -> Tensor:
    """Return attention without the keys ``after`` to ``end``, or to those before the ``last`` ones."""
    scores = step.scores
    scores[:, after : scores.shape[1] - last if end is None else end] = -torch.inf
    return (scores.softmax(-1)[:, None] @ step.values.double())[:, 0]


def _in_parts(step: StepAttention, size: int) -> Tensor:
    """Return attention over parts of the keys, each with its own maximum, joined by their sums alone."""
    out, total = torch.zeros_like(step.right), torch.zeros(len(step.query), 1).double()
    for scores, values in zip(step.scores.split(size, 1), step.values.double().split(size, 1), strict=True):
        exps = (scores - scores.amax(1, keepdim=True)).exp()
        out, total = out + (exps[:, None] @ values)[:, 0], total + exps.sum(1, keepdim=True)
    return out / total
