"""A few numbers of each step, kept where they were computed and fetched together when the page is done.

To read a number of a GPU's is to wait for everything that was asked of it before; once a page instead of at each step
nothing is slowed down by it. What is kept of a step does not grow with the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.observation.observation import BEST_OF_STEP, Best


class Columns:
    """Small tensors of each step, the same of each."""

    def __init__(self) -> None:
        self._rows: list[tuple[Tensor, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def kept(self) -> Iterator[Tensor]:
        """Every tensor that is held on to."""
        return chain.from_iterable(self._rows)

    def add(self, *parts: Tensor) -> None:
        """Keep one step's; nothing waits for them."""
        self._rows.append(parts)

    def fetch(self) -> list[list[Any]]:
        """Give each part's numbers, step by step; waits once for each part."""
        return [torch.stack(column).tolist() for column in zip(*self._rows, strict=True)]


def best_of_step(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Give the ids of the best tokens of ``[V]`` and their logits, the best first, on the device."""
    values, ids = logits.float().topk(min(BEST_OF_STEP, len(logits)))
    return ids, values


def fetched_best(ids: list[list[int]], logits: list[list[float]]) -> list[Best]:
    """Give every step's best of what :func:`best_of_step` gave, once fetched."""
    return [Best(tuple(of_step), tuple(its)) for of_step, its in zip(ids, logits, strict=True)]
