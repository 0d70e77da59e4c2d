"""Pages with their truth, and the rows of training data that they make.

A row has a page's inputs as the contract makes them, its answer, and the words that vision names.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import tokenizers
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END, UNITS
from pytest_dsocr.contract.presets import Preset, crop_count, crop_grid, image_token_count, tokens_per_side
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError


class Rect(NamedTuple):
    """Left, top, right and bottom in pixels of the page, fractions allowed."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Word:
    """Something to read that has no space in it, and the pixels that its ink covers."""

    text: str
    rect: Rect


@dataclass(frozen=True)
class Block:
    """A part of the page under one of the vendor's labels.

    ``text`` is what the answer says of it: ``# `` in front of a title, a table as HTML, nothing for an image.
    ``words`` are those on the page, in the order of ``text``, each of which holds the next one's characters.
    """

    label: str
    rects: tuple[Rect, ...]
    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True, eq=False)
class Page:
    """An RGB image, and its blocks in reading order."""

    kind: str
    seed: int
    image: Image.Image
    blocks: tuple[Block, ...]

    def answer(self, *, grounded: bool) -> str:
        """Return what a model should say: to the markdown prompt if ``grounded``, else to that of free OCR."""
        if grounded:
            return "\n\n".join(self._grounded())
        return "\n\n".join(block.text for block in self.blocks if block.text)

    def _grounded(self) -> Iterator[str]:
        for block in self.blocks:
            boxes = [list(self.units(rect)) for rect in block.rects]
            span = f"{REF}{block.label}{REF_END}{DET}{boxes}{DET_END}"
            yield f"{span}\n{block.text}" if block.text else span

    def units(self, rect: Rect) -> tuple[int, int, int, int]:
        """Return ``rect`` in the model's coordinates, 0 to 999 over the page's width and height."""
        sides = (self.image.width, self.image.height) * 2
        x1, y1, x2, y2 = (min(max(round(v / side * UNITS), 0), UNITS) for v, side in zip(rect, sides, strict=True))
        return x1, y1, x2, y2


PageMaker = Callable[[int, Sequence[str]], Page]
"""Makes the page of a seed of words that the tokenizer knows."""
HELD_OUT = 10_000
"""Seeds below it are never trained on."""
READABLE_PX = 1024
"""The smallest view of a whole page in which words are asked of the vision tokens."""
IGNORED = -100
"""The target where nothing is asked, as torch's cross entropy has it."""


@dataclass(frozen=True, eq=False)
class Row:
    """A page and what is asked of it."""

    inputs: Inputs
    answer: list[int]
    word_at: Tensor
    """Of the image's tokens those over the middle of a word, int64 ``[words]``."""
    word: Tensor
    """The token that each of these words begins with, int64 ``[words]``."""
    is_blind: bool
    """Its separator is zeroed and its answer is empty, so that the separator comes to matter."""


@dataclass(frozen=True)
class Pages(Dataset[list[Row]]):
    """Item ``step`` is that step's batch; it follows from the arguments alone."""

    make_page: PageMaker
    tokenizer_file: Path
    batch_pages: int
    presets: tuple[str, ...]
    """Drawn from alike for each row: a name that comes twice is drawn twice as often."""
    free_share: float = 0.2
    """Of the rows, those that the free-OCR prompt asks."""
    blind_share: float = 0.02

    def __getitem__(self, step: int) -> list[Row]:
        """Make the rows of a step."""
        backend = tokenizers.Tokenizer.from_file(str(self.tokenizer_file))
        words = words_of(backend)
        first = HELD_OUT + step * self.batch_pages
        return [self._row(seed, words, backend) for seed in range(first, first + self.batch_pages)]

    def _row(self, seed: int, words: Sequence[str], backend: tokenizers.Tokenizer) -> Row:
        random = Random(seed)
        grounded, is_blind = random.random() >= self.free_share, random.random() < self.blind_share
        page = self.make_page(seed, words)
        return make_row(page, backend, random.choice(self.presets), grounded=grounded, is_blind=is_blind)


def words_of(backend: tokenizers.Tokenizer) -> list[str]:
    """Return the words in lower case that are one token in any place of a sentence.

    Raises:
        DsocrError: where there are fewer than ten, as in a tokenizer of bytes alone.
    """
    known = backend.get_vocab()
    words = sorted(token[1:] for token in known if token[0] == "Ġ" and token[1:].isalpha() and token[2:])
    found = [word for word in words if word.islower() and {word.capitalize(), f"Ġ{word.capitalize()}"} <= {*known}]
    if len(found) < 10:
        raise DsocrError(f"the tokenizer has {len(found)} words of one token; give one that has ten or more")
    return found


def make_row(
    page: Page, backend: tokenizers.Tokenizer, preset: str | Preset, *, grounded: bool = True, is_blind: bool = False
) -> Row:
    """Turn a page into a row, for the markdown prompt if ``grounded``, else for that of free OCR."""
    tokenizer, preset = Tokenizer.over(backend), DEFAULT.preset(preset)
    inputs = DEFAULT.prepare(page.image, "markdown" if grounded else "free", preset, tokenizer)
    answer = page.answer(grounded=grounded)
    place = token_places(page.image.size, preset)
    firsts = [first for block in _first_ids(page, answer, backend) for first in block]
    rects = [word.rect for block in page.blocks for word in block.words]
    places = [place(rect) for rect in rects] if place else []
    said = [] if is_blind else tokenizer.encode(answer)
    return Row(
        inputs,
        [*said, tokenizer.special.eos],
        torch.tensor(places, dtype=torch.int64),
        torch.tensor(firsts[: len(places)], dtype=torch.int64),
        is_blind,
    )


def token_places(size_px: tuple[int, int], preset: Preset) -> Callable[[Rect], int] | None:
    """Return what says which image token is over the middle of a rect; None where words are too small to be read.

    Tokens lie row by row, each row ended by a newline; the crops', laid out as one page, come before the whole view's.
    """
    width, height = size_px
    grid = crop_grid(width, height, DEFAULT.tiling) if preset.crop else (1, 1)
    if crop_count(grid):
        side = tokens_per_side(DEFAULT.tiling.crop_px)
        columns, rows = grid[0] * side, grid[1] * side
        first, left, top, across, down = 0, 0.0, 0.0, columns / width, rows / height
    elif preset.view_size < READABLE_PX:
        return None
    else:
        columns = rows = tokens_per_side(preset.view_size)
        first = image_token_count(preset, grid) - rows * (columns + 1) - 1
        across = down = columns / max(size_px)
        left, top = ((columns - length * across) / 2 for length in size_px)

    def place(rect: Rect) -> int:
        column = min(int(left + across * (rect.x1 + rect.x2) / 2), columns - 1)
        row = min(int(top + down * (rect.y1 + rect.y2) / 2), rows - 1)
        return first + row * (columns + 1) + column

    return place


def _first_ids(page: Page, answer: str, backend: tokenizers.Tokenizer) -> Iterator[list[int]]:
    """Yield, block by block, the id of the token that each word begins with in ``answer``."""
    encoding = backend.encode(answer, add_special_tokens=False)
    starts, cursor = [start for start, _ in encoding.offsets], 0
    for block in page.blocks:
        if DET_END in answer:  # a page number may stand in its own coordinates
            cursor = answer.index(DET_END, cursor) + len(DET_END)
        cursor, found = answer.index(block.text, cursor), []
        for word in block.words:
            at = answer.index(word.text, cursor)
            found.append(encoding.ids[bisect_right(starts, at) - 1])
            cursor = at + len(word.text)
        yield found


@dataclass(frozen=True)
class Batch:
    """Rows side by side, padded at the end. Shapes: B rows, T tokens."""

    ids: Tensor
    """int64 ``[B, T]``: prompt, answer, padding."""
    mask: Tensor
    """bool ``[B, T]``, True at the image's tokens."""
    targets: Tensor
    """int64 ``[B, T]``: the next token where it is of the answer, :data:`IGNORED` elsewhere."""


def collate(rows: Sequence[Row], pad: int) -> Batch:
    """Put rows side by side."""
    length = max(row.inputs.prompt_tokens + len(row.answer) for row in rows)
    ids, targets = torch.full((len(rows), length), pad), torch.full((len(rows), length), IGNORED)
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    for n, row in enumerate(rows):
        prompt, answer = row.inputs.prompt_tokens, torch.tensor(row.answer)
        ids[n, :prompt], mask[n, :prompt] = row.inputs.input_ids[0], row.inputs.images_seq_mask[0]
        ids[n, prompt : prompt + len(answer)] = answer
        targets[n, prompt - 1 : prompt - 1 + len(answer)] = answer
    return Batch(ids, mask, targets)
