"""From seeds to batches: pages drawn, seen as the contract says, and what is asked of every token.

Shapes: B rows, P crops, V side of the whole view in pixels, T tokens, N image tokens, G tokens of the whole view.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tokenizers
import torch
from PIL import Image
from torch.utils.data import Dataset

from ci.training.batch import UNKNOWN, Drawn, Row, collate
from ci.training.cells import CROP_CELLS, Cells, crop_cells, page_cells
from ci.training.generator import GRIDS, generate
from ci.training.lexicon import LABELS
from ci.training.page import Page
from ci.training.recipe import BLIND_SHARE, FREE_SHARE, PRESET_SHARES, READABLE_VIEW_PX, Schedule
from ci.training.seeds import FIRST_TRAINING_SEED
from ci.training.vocabulary import mini_vocabulary
from pytest_dsocr.contract.markup import DET_END
from pytest_dsocr.contract.presets import PRESETS, Grid, Preset, crop_count, image_token_count
from pytest_dsocr.contract.prompt import PROMPTS, prompt_ids, split_at_images
from pytest_dsocr.engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class Kind:
    """What the rows of a batch have in common."""

    preset: Preset
    grid: Grid
    """Of the page; without crops it only shapes it."""
    level: float
    seeds: range

    @property
    def crops(self) -> Grid:
        """The grid that the page is cut into in this preset."""
        return self.grid if self.preset.crop else (1, 1)

    @property
    def image_tokens(self) -> int:
        """The image's tokens in the prompt."""
        return image_token_count(self.preset, self.crops)

    @property
    def crop_tokens(self) -> int:
        """Those of them that stand for crops."""
        return self.image_tokens - image_token_count(self.preset, (1, 1))


class TrainingPages(Dataset[Drawn]):
    """Item ``step`` is the batch that is new at that step; it follows from the recipe alone."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    @cached_property
    def backend(self) -> tokenizers.Tokenizer:
        """The mini vocabulary; made in each worker."""
        return mini_vocabulary()

    def kind(self, step: int) -> Kind:
        """Draw what a step's batch is made of: every other one of full pages, the others as easy as the curriculum."""
        draw = random.Random(step)
        preset = draw.choices([*PRESET_SHARES], [*PRESET_SHARES.values()])[0]
        grid = draw.choices([*GRIDS], [*GRIDS.values()])[0]
        level = 1.0 if draw.random() < 0.5 else self.schedule.level(step) * draw.uniform(0.3, 1)
        first = FIRST_TRAINING_SEED + step * self.schedule.batch_pages
        return Kind(PRESETS[preset], grid, level, range(first, first + self.schedule.batch_pages))

    def __getitem__(self, step: int) -> Drawn:
        return draw_batch(self.kind(step), self.backend)


def draw_batch(kind: Kind, backend: tokenizers.Tokenizer) -> Drawn:
    """Draw the pages of ``kind`` and say what is asked of them."""
    rows = [make_row(seed, kind, backend) for seed in kind.seeds]
    pages = [torch.from_numpy(row.page) for row in rows]
    return Drawn(pages, kind.preset, kind.crops, collate(rows, backend, kind.crop_tokens))


def make_row(seed: int, kind: Kind, backend: tokenizers.Tokenizer) -> Row:
    """Draw the page of ``seed`` and say what is asked of it."""
    page = generate(seed, level=kind.level, grid=kind.grid)
    draw = random.Random(seed)
    grounded = draw.random() >= FREE_SHARE
    blind = draw.random() < BLIND_SHARE
    answer = page.answer(grounded=grounded)
    tokenizer = Tokenizer.over(backend)
    pieces = split_at_images(PROMPTS["markdown" if grounded else "free"], 1)
    prompt, _ = prompt_ids(pieces, [kind.image_tokens], tokenizer)
    said = [] if blind else tokenizer.encode(answer)
    words, empty = word_targets(page, answer, kind, backend)
    layout = layout_targets(page, page_cells(page.image.size, kind.preset, 0))
    ids = [*prompt, *said, tokenizer.special.eos]
    return Row(np.array(page.image), ids, len(prompt), blind, words, empty, *layout)


def word_targets(
    page: Page, answer: str, kind: Kind, backend: tokenizers.Tokenizer
) -> tuple[list[tuple[int, int, int]], np.ndarray]:
    """Say which image token has the middle of which word, and which have none in reach."""
    empty = np.zeros(kind.image_tokens, bool)
    cells = reading_cells(page.image, kind)
    if cells is None:
        return [], empty
    for row in range(cells.rows):
        empty[cells.token(0, row) : cells.token(cells.columns, row)] = True
    firsts = first_ids(page, answer, backend)
    found = []
    for ids, block in zip(firsts, page.blocks, strict=True):
        places = [cells.centre(word.rect) for word in block.words]
        for n, word in enumerate(block.words):
            following = n + 1 < len(places) and _same_view(places[n], places[n + 1], kind)
            found.append((cells.token(*places[n]), ids[n], ids[n + 1] if following else UNKNOWN))
            for column, row in cells.touched(word.rect):
                empty[cells.token(column, row)] = False
    return found, empty


def reading_cells(image: Image.Image, kind: Kind) -> Cells | None:
    """Give the raster whose tokens are to name words: the crops', or a whole view that is large enough."""
    if crop_count(kind.crops):
        return crop_cells(image.size, kind.crops)
    readable = kind.preset.view_size >= READABLE_VIEW_PX
    return page_cells(image.size, kind.preset, kind.crop_tokens) if readable else None


def _same_view(here: tuple[int, int], there: tuple[int, int], kind: Kind) -> bool:
    if not crop_count(kind.crops):
        return True
    return all(a // CROP_CELLS == b // CROP_CELLS for a, b in zip(here, there, strict=True))


def first_ids(page: Page, answer: str, backend: tokenizers.Tokenizer) -> list[list[int]]:
    """Give, block by block, the id of the token that each word begins with in ``answer``."""
    encoding = backend.encode(answer, add_special_tokens=False)
    starts = [start for start, _ in encoding.offsets]
    cursor, found = 0, []
    for block in page.blocks:
        of_block = []
        if DET_END in answer:  # a page number may stand in its own coordinates
            cursor = answer.index(DET_END, cursor) + len(DET_END)
        cursor = answer.index(block.text, cursor)
        for word in block.words:
            at = answer.index(word.text, cursor)
            of_block.append(encoding.ids[bisect_right(starts, at) - 1])
            cursor = at + len(word.text)
        found.append(of_block)
    return found


def layout_targets(page: Page, cells: Cells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Say which block reaches into each cell of the whole view, newlines included: labels, boxes and edges."""
    labels = np.zeros(cells.tokens, np.int64)
    rects = np.zeros((cells.tokens, 4), np.float32)
    edges = np.zeros((cells.tokens, 4), np.float32)
    scale = np.array([*page.image.size] * 2)
    parts = [(1 + LABELS.index(block.label), rect) for block in page.blocks for rect in block.rects]
    for inside in (False, True):  # a block over a cell's middle wins over one that only touches it
        for label, rect in parts:
            places = [place for place in cells.touched(rect) if not inside or cells.is_inside(place, rect)]
            for place in places:
                at = cells.token(*place)
                labels[at], rects[at], edges[at] = label, np.array(rect) / scale, cells.edges(place, rect)
    return labels, rects, edges
