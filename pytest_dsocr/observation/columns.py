"""A few numbers of each step, kept where they were computed and fetched together when the page is done.

To read a number of a GPU's is to wait for everything that was asked of it before; once a page instead of at each step
nothing is slowed down by it. What is kept of a step does not grow with the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from pytest_dsocr.observation.observation import BEST_OF_STEP, Best

FIRST_ROOM = 64
"""Steps; doubled where there are more."""


class Columns:
    """Small tensors of each step, the same of each, written one below the other.

    A tensor of each step's own would lie between the logits of this step and those of the next, which are freed, and
    would keep their memory from being used again: a process grew by 1.5 MB a step of the vendor's vocabulary.
    """

    def __init__(self) -> None:
        self._columns: tuple[Tensor, ...] = ()
        self._steps = self._room = 0

    def __len__(self) -> int:
        return self._steps

    @property
    def kept(self) -> Iterator[Tensor]:
        """Every tensor that is held on to."""
        return iter(self._columns)

    def add(self, *parts: Tensor) -> None:
        """Keep one step's; nothing waits for them."""
        if self._steps == self._room:
            self._grow(parts)
        for column, part in zip(self._columns, parts, strict=True):
            column[self._steps] = part
        self._steps += 1

    def fetch(self) -> list[list[Any]]:
        """Give each part's numbers, step by step; waits once for each part."""
        return [column[: self._steps].tolist() for column in self._columns]

    def _grow(self, parts: Sequence[Tensor]) -> None:
        self._room = max(FIRST_ROOM, 2 * self._room)
        grown = tuple(part.new_empty(self._room, *part.shape) for part in parts)
        for column, before in zip(grown, self._columns, strict=False):
            column[: self._steps] = before
        self._columns = grown


def best_of_step(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Give the ids of the best tokens of ``[V]`` and their logits, the best first, on the device."""
    values, ids = logits.float().topk(min(BEST_OF_STEP, len(logits)))
    return ids, values


def fetched_best(ids: list[list[int]], logits: list[list[float]]) -> list[Best]:
    """Give every step's best of what :func:`best_of_step` gave, once fetched."""
    return [Best(tuple(of_step), tuple(its)) for of_step, its in zip(ids, logits, strict=True)]
