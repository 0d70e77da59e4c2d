"""Rows of training data side by side, with every index that the losses need, so that a step never waits for the device.

Shapes: B rows, P crops, V side of the whole view in pixels, T tokens, N image tokens, G tokens of the whole view.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from torch import Tensor

from ci.training.levels import crop_levels, whole_levels
from ci.training.vocabulary import number_ids
from pytest_dsocr.contract.markup import DET, DET_END
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.engine.tokenizer import Tokenizer

TOKENS_STEP = 64
"""Rows are as long as a multiple of this, so that lengths recur."""
EMPTY_SAMPLES = 2048
"""About how many empty tokens of a batch are asked."""
UNKNOWN = -1
"""Stands for a next word that is in another view."""


class Row(NamedTuple):
    """One page of a batch; what each field is, :class:`Asked` says."""

    page: np.ndarray
    ids: list[int]
    prompt_tokens: int
    blind: bool
    words: list[tuple[int, int, int]]
    empty: np.ndarray
    labels: np.ndarray
    rects: np.ndarray
    edges: np.ndarray


class Asked(NamedTuple):
    """What rows of one preset and one grid are asked."""

    ids: Tensor
    """int64 ``[B, T]``: BOS, image tokens, prompt, answer, EOS, padding."""
    image_tokens: int
    blind: Tensor
    """bool ``[B]``, True where the separator is to be zeroed."""
    asked_text: Tensor
    """int64 ``[texts]``: the places in ``B * T`` whose next token is part of the answer and no coordinate."""
    text: Tensor
    """int64 ``[texts]``: those tokens."""
    asked_number: Tensor
    """int64 ``[numbers]``: the places in ``B * T`` whose next token is a coordinate."""
    number: Tensor
    """int64 ``[numbers]``: those coordinates, 0 to 999."""
    word_at: Tensor
    """int64 ``[words]``: the places in ``B * N`` of the tokens over the middle of a word."""
    word: Tensor
    """int64 ``[words]``: the token that the word begins with."""
    following_at: Tensor
    """int64 ``[words]``: those of ``word_at`` whose next word is seen in the same view."""
    following: Tensor
    """int64 ``[words]``: that word's first token."""
    empty_at: Tensor
    """int64 ``[samples]``: some places in ``B * N`` of tokens that are to name a word, but no word is there."""
    labels: Tensor
    """int64 ``[B, G]``: 1 + the index of the label of the block in a cell of the whole view, 0 where there is none."""
    rects: Tensor
    """float32 ``[B, G, 4]``: that block's box, 0 to 1 over the page."""
    edges: Tensor
    """float32 ``[B, G, 4]``: its sides near the cell, in cells."""
    first_page_token: int
    """The first of the whole view's tokens among the image's."""


class Drawn(NamedTuple):
    """A batch as it leaves a worker: the pages as they were drawn."""

    pages: list[Tensor]
    """B of uint8 ``[height, width, 3]``."""
    preset: Preset
    grid: Grid
    asked: Asked


class Batch(NamedTuple):
    """A batch as the model sees it."""

    crops: Tensor
    """uint8 ``[B, P, 3, 640, 640]``."""
    pages: Tensor
    """uint8 ``[B, 3, V, V]``."""
    grid: Grid
    asked: Asked


def on_device(drawn: Drawn, device: torch.device) -> Batch:
    """Take a batch to the device and cut its views there."""
    pages = [page.to(device, non_blocking=True).permute(2, 0, 1) for page in drawn.pages]
    asked = Asked(*(_moved(part, device) for part in drawn.asked))
    crops = torch.stack([crop_levels(page, drawn.grid) for page in pages])
    wholes = torch.stack([whole_levels(page, drawn.preset) for page in pages])
    return Batch(crops, wholes, drawn.grid, asked)


def _moved(part: Any, device: torch.device) -> Any:
    return part.to(device, non_blocking=True) if isinstance(part, Tensor) else part


def collate(rows: Sequence[Row], backend: tokenizers.Tokenizer, first_page_token: int) -> Asked:
    """Put what rows of one kind are asked side by side, padded at the end."""
    image_tokens = len(rows[0].empty)
    ids = _padded([row.ids for row in rows], Tokenizer.over(backend).special.pad)
    text, number = _answers(rows, ids, backend)
    words = np.array([(n * image_tokens + at, *of) for n, row in enumerate(rows) for at, *of in row.words])
    words = words.reshape(-1, 3)
    known = words[words[:, 2] != UNKNOWN]
    return Asked(
        ids=torch.from_numpy(ids),
        image_tokens=image_tokens,
        blind=torch.tensor([row.blind for row in rows]),
        asked_text=_ints(text - 1),
        text=_ints(ids.flat[text]),
        asked_number=_ints(number - 1),
        number=_ints(_values(backend)[ids.flat[number]]),
        word_at=_ints(words[:, 0]),
        word=_ints(words[:, 1]),
        following_at=_ints(known[:, 0]),
        following=_ints(known[:, 2]),
        empty_at=_ints(_sample(np.flatnonzero(np.stack([row.empty for row in rows])))),
        labels=torch.from_numpy(np.stack([row.labels for row in rows])),
        rects=torch.from_numpy(np.stack([row.rects for row in rows])),
        edges=torch.from_numpy(np.stack([row.edges for row in rows])),
        first_page_token=first_page_token,
    )


def _padded(rows: Sequence[Sequence[int]], pad: int) -> np.ndarray:
    tokens = -(-max(map(len, rows)) // TOKENS_STEP) * TOKENS_STEP
    ids = np.full((len(rows), tokens), pad, np.int64)
    for n, row in enumerate(rows):
        ids[n, : len(row)] = row
    return ids


def _answers(rows: Sequence[Row], ids: np.ndarray, backend: tokenizers.Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Give the places in ``B * T`` of the answers' tokens: of text and markup, and of coordinates."""
    at = np.arange(ids.shape[1])
    bounds = np.array([(row.prompt_tokens, len(row.ids)) for row in rows])
    said = (at >= bounds[:, :1]) & (at < bounds[:, 1:])
    opened, closed = (np.cumsum(ids == backend.token_to_id(mark), axis=1) for mark in (DET, DET_END))
    numbers = said & (opened > closed) & (_values(backend)[ids] >= 0)
    return np.flatnonzero(said & ~numbers), np.flatnonzero(numbers)


@cache
def _values(backend: tokenizers.Tokenizer) -> np.ndarray:
    """Give the number that each token is, or -1."""
    values = np.full(backend.get_vocab_size(), -1, np.int64)
    values[number_ids(backend)] = np.arange(1000)
    return values


def _sample(places: np.ndarray) -> np.ndarray:
    return places[:: max(len(places) // EMPTY_SAMPLES, 1)]


def _ints(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.int64))
