"""A few numbers of each step, kept where they were computed and fetched together when the page is done.

Reading a number from a GPU waits for all work submitted before it. Fetching once a page, not at each step, slows
nothing down. The size of what is kept does not depend on the vocabulary.

Shapes: B steps that are reduced at once, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.records.reference_result import BEST_OF_STEP, Best

FIRST_ROOM = 64
"""Number of steps that the first columns have room for; it doubles when they are full."""
AT_ONCE = 16
"""Steps whose logits are reduced together: each reduction is a dozen kernels, whose launch costs more than they do."""

Reduce = Callable[[Tensor, int], Sequence[Tensor]]
"""Function of logits ``[B, V]`` and the number of their first step; returns columns with B numbers or rows."""


class Columns:
    """Reduced numbers of each step's logits, stored in columns with one row a step.

    A separate tensor for each step would lie between the logits of two steps, which are freed. It would keep their
    memory from being reused: a process grew by 1.5 MB a step with the vendor's vocabulary.

    Args:
        reduce: turns logits into the columns that are kept.
    """

    def __init__(self, reduce: Reduce) -> None:
        self._reduce = reduce
        self._waiting: list[Tensor] = []
        self._columns: tuple[Tensor, ...] = ()
        self._steps = self._room = 0

    def __len__(self) -> int:
        return self._steps + len(self._waiting)

    @property
    def kept(self) -> Iterator[Tensor]:
        """Every tensor that is kept; up to :data:`AT_ONCE` of them are logits."""
        yield from (*self._columns, *self._waiting)

    def add(self, logits: Tensor) -> None:
        """Keep a step's logits ``[V]``, float32, without waiting; they must not change afterwards."""
        if self._waiting and len(logits) != len(self._waiting[0]):
            self._settle()
        self._waiting.append(logits)
        if len(self._waiting) == AT_ONCE:
            self._settle()

    def fetch(self) -> list[list[Any]]:
        """Return each column's numbers, step by step; waits once for each."""
        self._settle()
        return [column[: self._steps].tolist() for column in self._columns]

    def _settle(self) -> None:
        if not self._waiting:
            return
        parts = self._reduce(torch.stack(self._waiting), self._steps)
        end = self._steps + len(self._waiting)
        self._waiting.clear()
        if end > self._room:
            self._grow(end, parts)
        for column, part in zip(self._columns, parts, strict=True):
            column[self._steps : end] = part
        self._steps = end

    def _grow(self, end: int, parts: Sequence[Tensor]) -> None:
        self._room = max(FIRST_ROOM, 2 * self._room, end)
        grown = tuple(part.new_empty(self._room, *part.shape[1:]) for part in parts)
        for column, before in zip(grown, self._columns, strict=False):
            column[: self._steps] = before[: self._steps]
        self._columns = grown


def best_of_steps(logits_BV: Tensor, _first: int = 0) -> tuple[Tensor, Tensor]:
    """Return the ids of the best tokens of each step and their logits, the best first, on the device."""
    values, ids = logits_BV.topk(min(BEST_OF_STEP, logits_BV.shape[1]))
    return ids, values


def fetched_best(ids: list[list[int]], logits: list[list[float]]) -> list[Best]:
    """Return the best tokens of every step, from the fetched columns of :func:`best_of_steps`."""
    return [Best(tuple(of_step), tuple(its)) for of_step, its in zip(ids, logits, strict=True)]
