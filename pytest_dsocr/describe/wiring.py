"""A tensor as the sum of other tensors: the connections of a block, read from its values.

Shapes: N rows, C channels.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.describe.pair import TINY, spread

MOST_TERMS = 3
MOST_ROWS = 64
"""Number of rows from which a sum is found; it is verified on all of them."""
ONE = 1e-3
"""Distance of a factor from 1 that counts as none."""


class Term(NamedTuple):
    """A tensor that may be a part of a sum."""

    words: str
    tensor: Tensor


class Sum(NamedTuple):
    """A sum that equals a tensor."""

    words: str
    error: float
    """Relative error on all rows."""


def sum_of(target: Tensor, terms: Sequence[Term], limit: float, *, is_scaled: bool = False) -> Sum | None:
    """Return the shortest sum of terms that equals a tensor within a limit; None if none does.

    Args:
        target: the tensor.
        terms: tensors that may be added.
        limit: largest relative error.
        is_scaled: whether one or two terms with factors are looked for, instead of sums without factors.
    """
    width = target.shape[-1]
    known = [one for one in terms if one.tensor.numel() == target.numel()]
    every = [one.tensor.reshape(-1, width).float() for one in known]
    flat = target.reshape(-1, width).float()
    rows = spread(len(flat), MOST_ROWS)
    few, some = [one[rows] for one in every], flat[rows]
    for chosen, factors in _candidates(some, few, limit, is_scaled=is_scaled):
        made = torch.stack([factor * every[one] for one, factor in zip(chosen, factors, strict=True)]).sum(0)
        if (error := error_of(made, flat)) <= limit:
            parts = [_times(factor, known[one].words) for one, factor in zip(chosen, factors, strict=True)]
            return Sum(" plus ".join(parts), error)
    return None


def _candidates(
    some: Tensor, few: Sequence[Tensor], limit: float, *, is_scaled: bool
) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Yield the sums that equal a few rows: first without factors, then one or two terms with a factor each."""
    for count in range(1, MOST_TERMS + 1) if not is_scaled else ():
        for chosen in combinations(range(len(few)), count):
            if error_of(torch.stack([few[one] for one in chosen]).sum(0), some) <= limit:
                yield chosen, (1.0,) * count
    for chosen in chain(((one,) for one in range(len(few))), combinations(range(len(few)), 2)):
        columns = torch.stack([few[one].flatten() for one in chosen], 1).double()
        found = torch.linalg.lstsq(columns, some.flatten()[:, None].double()).solution.flatten()
        if error_of((columns @ found).view_as(some), some) <= limit:
            yield chosen, tuple(found.tolist())


def _times(factor: float, words: str) -> str:
    return words if abs(factor - 1) < ONE else f"{factor:.3g} times {words}"


def error_of(actual: Tensor, right: Tensor) -> float:
    """Return the relative error of a tensor; infinite if the shapes differ or a value is not finite."""
    if actual.shape != right.shape:
        return float("inf")
    right = right.float().cpu()
    error = float((actual.float().cpu() - right).norm() / right.norm().clamp_min(TINY))
    return error if error == error else float("inf")
