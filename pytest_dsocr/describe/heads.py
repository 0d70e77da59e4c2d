"""Numbers of single heads of attention that may be others: found by Gauss and Newton's method from the right ones.

Shapes: N heads, R rows that are computed, C channels.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.base.words import joined
from pytest_dsocr.describe.block import Variant
from pytest_dsocr.describe.pair import TINY, named

MOST_STEPS = 12
SHRINKS = (1.0, 0.5, 0.25, 0.125)
"""Parts of a step that are tried, the longest first."""
LEAST_GAIN = 0.02
"""Part of the error by which a step must reduce it for another one to follow."""
SMALL = 1e-3
"""Change of a number from which its effect is measured."""
EQUAL = 0.02
"""Difference of numbers that are equal."""
MOST_SHOWN = 3
Computed = Callable[[Variant], Tensor]


class PerHead(NamedTuple):
    """A number that each head has."""

    field: str
    words: str
    """Words with places for the heads and for their numbers."""
    right: float = 1.0
    of_decoder: bool = False


PER_HEAD = (
    PerHead("head_factors", "the output of {} counts {} times"),
    PerHead("score_factors", "the scores of {} are multiplied by {}"),
    PerHead("slopes", "the scores of {} change by {} for each token between query and key", 0.0, of_decoder=True),
)


def of_heads(compute: Computed, actual: Tensor, heads: int, *, is_decoder: bool) -> Iterator[Variant]:
    """Yield variants with a number for each head that come nearer to the subject's rows.

    Args:
        compute: the rows' output ``[R, C]`` of a variant.
        actual: the subject's output of these rows.
        heads: number of heads.
        is_decoder: whether keys come before queries.
    """
    for one in PER_HEAD:
        if one.of_decoder <= is_decoder and (found := _fitted(one, compute, actual, heads)) is not None:
            yield from _variants(one, found)


def _fitted(one: PerHead, compute: Computed, actual: Tensor, heads: int) -> Tensor | None:
    """Return the numbers that fit best ``[N]``; None if the first step hardly helps."""

    def left(numbers: Tensor) -> Tensor:
        made = compute(replace(Variant(), **{one.field: numbers.float()}))  # type: ignore[arg-type]
        return ((made - actual) / weights).flatten().double()

    numbers, weights = torch.full((heads,), one.right, dtype=torch.float64), torch.ones(())
    weights = left(numbers).view_as(actual).norm(dim=1, keepdim=True).clamp_min(TINY).float()
    error = left(numbers)
    for _ in range(MOST_STEPS):
        effects = torch.stack([(left(numbers + SMALL * unit) - error) / SMALL for unit in torch.eye(heads)], 1)
        change = -torch.linalg.lstsq(effects, error[:, None]).solution[:, 0]
        trials = ((numbers + part * change, left(numbers + part * change)) for part in SHRINKS)
        better = next((pair for pair in trials if pair[1].norm() < error.norm()), None)
        if better is None or not torch.isfinite(better[1]).all():
            break
        gain = 1 - float(better[1].norm() / error.norm())
        numbers, error = better
        if gain < LEAST_GAIN:
            break
    return None if numbers.eq(one.right).all() else numbers.float()


def _variants(one: PerHead, numbers: Tensor) -> Iterator[Variant]:
    """Yield the variant with its words; heads with nearly the right number get that, and if all do, there is none."""
    is_other = (numbers - one.right).abs() > EQUAL * (numbers - one.right).abs().max().clamp_min(SMALL)
    if not (found := is_other.nonzero().flatten().tolist()):
        return
    values = numbers[is_other]
    low, high = float(values.min()), float(values.max())
    shown = f"{low:.3g} to {high:.3g}"
    if high - low <= EQUAL * max(abs(high), abs(low)):
        shown = f"{float(values.mean()):.3g}"
    elif len(found) <= MOST_SHOWN:
        shown = joined([f"{value:.3g}" for value in values.tolist()])
    heads = f"{named('head', found)} of {len(numbers)}" if len(found) < len(numbers) else "each head"
    text = one.words.format(heads, shown)
    yield replace(Variant("heads", text), **{one.field: numbers.where(is_other, torch.tensor(one.right))})  # type: ignore[arg-type]
