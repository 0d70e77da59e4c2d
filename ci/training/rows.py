"""Pages as batches: what the model sees, and what it is asked.

Shapes: B rows, N image tokens, T tokens of a row.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ci.training.generator import generate, grid_of, size_of
from ci.training.page import Page, Rect
from pytest_dsocr.contract.markup import DET, DET_END
from pytest_dsocr.contract.presets import Grid, Preset, crop_count, encoded_side, image_token_count
from pytest_dsocr.contract.prompt import prompt_ids, split_at_images
from pytest_dsocr.engine.fusion import fuse
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.models.spec import ModelSpec

TOKENIZER = MINI_FOLDER / "tokenizer.json"
HELD_OUT = 10_000
"""Seeds below it are never trained on."""
READABLE_PX = 1024
"""The smallest view of a whole page on which vision tokens are asked for words."""
LENGTH_STEP, NUMBERS = 64, 1000
DEFAULT_SHARE = 0.9
"""Share of the batches in the model's default preset. The others share the rest."""


class Batch(NamedTuple):
    """Rows of one preset, one grid and one size of pages. Places count through all rows."""

    pages: Tensor
    """uint8 ``[B, height, width, 3]``, as drawn."""
    preset: Preset
    grid: Grid
    """Grid of the crops; ``(1, 1)`` without them."""
    ids: Tensor
    """int64 ``[B, T]``: BOS, image tokens, prompt, output, EOS, padding."""
    blind: Tensor
    """bool ``[B]``: the separator is zeroed and the output empty; without such rows it would not matter."""
    text_at: Tensor
    """int64, the places in ``B * T`` before a token of the output that is no coordinate."""
    text: Tensor
    """int64, those tokens."""
    number_at: Tensor
    """int64, the places in ``B * T`` before a coordinate."""
    number: Tensor
    """int64, those coordinates."""
    word_at: Tensor
    """int64, the places in ``B * N`` of the image tokens over the middle of a word."""
    word: Tensor
    """int64, the token that each of these words begins with."""

    def to(self, device: torch.device) -> "Batch":
        """Return the same on a device; the host does not wait."""
        fields = self._asdict().items()
        moved: dict[str, Any] = {
            name: one.to(device, non_blocking=True) for name, one in fields if isinstance(one, Tensor)
        }
        columns, rows = self.grid  # a list, where torch's loader has pinned the batch
        return self._replace(grid=(columns, rows), **moved)


@dataclass(frozen=True)
class Pages(Dataset[Batch]):
    """Item ``step`` is that step's batch of one of ``world`` processes; it follows from the arguments alone."""

    family: ModelSpec
    batch_pages: int
    rank: int = 0
    world: int = 1
    free_share: float = 0.15
    """Share of the rows with the prompt of free OCR."""
    blind_share: float = 0.02

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The vocabulary; read in each worker."""
        return tokenizers.Tokenizer.from_file(str(TOKENIZER))

    @cached_property
    def words(self) -> list[str]:
        """The words that are on pages."""
        return words_of(self.backend)

    def __getitem__(self, step: int) -> Batch:
        """Draw the pages of a step, alike in size for all processes, so that none waits for another."""
        rng, preset = Random(step), self.family.preset(self.family.default_preset)
        others = [one for one in self.family.presets.values() if not one.is_lossy and one != preset]
        if others and rng.random() >= DEFAULT_SHARE:
            preset = rng.choice(others)
        first = HELD_OUT + (step * self.world + self.rank) * self.batch_pages
        return self.batch([*range(first, first + self.batch_pages)], preset, grid_of(step))

    def batch(self, seeds: Sequence[int], preset: Preset, grid: Grid) -> Batch:
        """Draw pages of one grid, and collate them with their outputs."""
        tokenizer, pages, ids, prompts, blind, words = Tokenizer.over(self.backend), [], [], [], [], []
        size = size_of(Random(f"size {seeds[0]}"), grid)
        crops = preset.grid(*size)
        count = image_token_count(preset, crops)
        for row, seed in enumerate(seeds):
            rng, page = Random(seed), generate(seed, self.words, grid, size)
            grounded, is_blind = rng.random() >= self.free_share, rng.random() < self.blind_share
            pieces = split_at_images(self.family.prompts["markdown" if grounded else "free"], 1)
            prompt, _ = prompt_ids(pieces, [count], tokenizer)
            output = page.output(grounded=grounded)
            ids.append([*prompt, *([] if is_blind else tokenizer.encode(output)), tokenizer.special.eos])
            words += [(row * count + at, word) for at, word in self._named_words(page, output, preset, crops)]
            pages.append(np.asarray(page.image))
            prompts.append(len(prompt))
            blind.append(is_blind)
        padded = _padded(ids, tokenizer.special.pad)
        text, number = self._asked(padded, prompts, [len(row) for row in ids])
        where, named = np.array(words, np.int64).reshape(-1, 2).T
        numbers = _values(self.backend)[padded.flat[number]]
        return Batch(
            torch.from_numpy(np.stack(pages)), preset, crops, torch.from_numpy(padded), torch.tensor(blind),
            *(torch.from_numpy(np.ascontiguousarray(one)) for one in (text - 1, padded.flat[text])),
            *(torch.from_numpy(np.ascontiguousarray(one)) for one in (number - 1, numbers, where, named)),
        )  # fmt: skip

    def _named_words(self, page: Page, output: str, preset: Preset, crops: Grid) -> Iterator[tuple[int, int]]:
        """Yield, for each word of a page that is large enough in its view, an image token and the word's token."""
        if not crop_count(crops) and preset.view_size < READABLE_PX:
            return
        for rect, first in zip(
            (word.rect for block in page.blocks for word in block.words),
            first_ids(page, output, self.backend),
            strict=True,
        ):
            yield token_place(rect, page.image.size, self.family, preset, crops), first

    def _asked(self, ids: np.ndarray, prompts: list[int], lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the outputs' tokens: of text and markup, and of coordinates."""
        at = np.arange(ids.shape[1])
        said = (at >= np.array(prompts)[:, None]) & (at < np.array(lengths)[:, None])
        opened, closed = (np.cumsum(ids == self.backend.token_to_id(mark), axis=1) for mark in (DET, DET_END))
        numbers = said & (opened > closed) & (_values(self.backend)[ids] >= 0)
        return np.flatnonzero(said & ~numbers), np.flatnonzero(numbers)


def _padded(rows: Sequence[Sequence[int]], pad: int) -> np.ndarray:
    length = -(-max(map(len, rows)) // LENGTH_STEP) * LENGTH_STEP
    return np.array([[*row, *[pad] * (length - len(row))] for row in rows], np.int64)


def words_of(backend: tokenizers.Tokenizer) -> list[str]:
    """Return the words in lower case that are one token in any place of a sentence."""
    known = backend.get_vocab()
    words = sorted(token[1:] for token in known if token[0] == "Ġ" and token[1:].isalpha() and token[2:])
    return [word for word in words if word.islower() and {word.capitalize(), f"Ġ{word.capitalize()}"} <= {*known}]


def first_ids(page: Page, output: str, backend: tokenizers.Tokenizer) -> Iterator[int]:
    """Yield the token that each of the page's words begins with in ``output``."""
    encoding = backend.encode(output, add_special_tokens=False)
    starts, cursor = [start for start, _ in encoding.offsets], 0
    for block in page.blocks:
        if DET_END in output:  # a page number may stand in its own coordinates
            cursor = output.index(DET_END, cursor) + len(DET_END)
        cursor = output.index(block.text, cursor)
        for word in block.words:
            at = output.index(word.text, cursor)
            yield encoding.ids[bisect_right(starts, at) - 1]
            cursor = at + len(word.text)


def token_place(rect: Rect, size: tuple[int, int], family: ModelSpec, preset: Preset, crops: Grid) -> int:
    """Return which image token is over the middle of a rect: of a crop if there are crops."""
    (width, height), (x, y) = size, ((rect.x1 + rect.x2) / 2, (rect.y1 + rect.y2) / 2)
    if crop_count(crops):
        side, (columns, rows) = encoded_side(preset.tiling.crop_px), crops
        column, row = (min(int(v), most - 1) for v, most in ((x / width * columns * side, columns * side),
                                                             (y / height * rows * side, rows * side)))  # fmt: skip
        view = row // side * columns + column // side
        at = view * side**2 + row % side * side + column % side
    else:
        side = encoded_side(preset.view_size)
        longest = max(size)
        left, top = (0.0, 0.0) if preset.is_squashed else ((longest - width) / 2, (longest - height) / 2)
        across, down = size if preset.is_squashed else (longest, longest)
        column, row = (min(int(v * side), side - 1) for v in ((x + left) / across, (y + top) / down))
        at = row * side + column
    return _places(family.layout.newlines, family.layout.mosaic, preset.view_size, preset.tiling.crop_px, crops)[at]


def order(newlines: bool, mosaic: bool, view_px: int, crop_px: int, crops: Grid) -> Tensor:
    """Return which of crops' tokens, page's tokens, newline and separator, in that order, each image token is."""
    count, side, whole = crop_count(crops), encoded_side(crop_px) ** 2, encoded_side(view_px) ** 2
    at = torch.arange(count * side + whole + 2.0)[:, None]
    of_crops, page, newline, separator = at.split([count * side, whole, 1, 1])
    parts = of_crops.view(count, side, 1) if count else None
    fused = fuse(parts, page, crops if mosaic else None, newline[0] if newlines else None, separator[0])
    return fused[:, 0].long()


@cache
def _places(newlines: bool, mosaic: bool, view_px: int, crop_px: int, crops: Grid) -> list[int]:
    """Return the image token of each of the views' tokens."""
    return order(newlines, mosaic, view_px, crop_px, crops).argsort().tolist()


@cache
def _values(backend: tokenizers.Tokenizer) -> np.ndarray:
    """Return the number that each token is, or -1."""
    values = np.full(backend.get_vocab_size(), -1, np.int64)
    values[number_ids(backend)] = np.arange(NUMBERS)
    return values


def number_ids(backend: tokenizers.Tokenizer) -> list[int]:
    """Return the tokens of the coordinates, in order."""
    known = backend.get_vocab()
    return [known[str(n)] for n in range(NUMBERS)]
