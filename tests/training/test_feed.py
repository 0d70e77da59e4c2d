"""What is asked of image tokens, held against what the contract's own views show of paint at the same place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from ci.training.batch import UNKNOWN
from ci.training.feed import Kind, first_ids, make_row
from ci.training.generator import GRIDS, generate
from ci.training.lexicon import LABELS
from ci.training.page import Block, Page, Rect, Word
from pytest_dsocr.contract.image import crops, global_view
from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.engine.fusion import fuse
from pytest_dsocr.engine.tokenizer import Tokenizer
from tests.training.small import BACKEND, kind

CELL = 64
NEAR_PX = 4
"""So near its edge a cell may be taken for its neighbour: paint keeps to whole pixels, and resampling blurs it."""
LIT = 128
TOKENIZER = Tokenizer.over(BACKEND)
READ = [("gundam", grid, 3) for grid in GRIDS]
READ += [(name, grid, 8) for name in ("base", "large") for grid in GRIDS]
LAID_OUT = [("gundam", (2, 3), 3), ("base", (1, 3), 4), ("large", (2, 1), 5), ("small", (3, 2), 6), ("tiny", (1, 1), 7)]


def views(image: Image.Image, of: Kind) -> list[np.ndarray]:
    """Give the levels of the crops, and last of the whole view."""
    seen = (*crops(image, of.crops), global_view(image, of.preset))
    return [np.array(view.getchannel(0)) for view in seen]


@lru_cache(maxsize=1)
def dark_views(size: tuple[int, int], of: Kind) -> list[np.ndarray]:
    return views(Image.new("RGB", size), of)


def painted(page: Page, rects: Sequence[Rect], of: Kind) -> list[np.ndarray]:
    """Give the light in each view where ``rects`` are painted on a page of this size, 0 to 255."""
    light = Image.new("RGB", page.image.size)
    for x1, y1, x2, y2 in rects:
        ImageDraw.Draw(light).rectangle((round(x1), round(y1), round(x2) - 1, round(y2) - 1), fill="white")
    dark = dark_views(light.size, of)
    return [np.maximum(lit, bare) - bare for lit, bare in zip(views(light, of), dark, strict=True)]


def tokens(cells: Sequence[np.ndarray], of: Kind) -> np.ndarray:
    """Lay out a number for each cell of each view as the engine lays out features: newlines and separator are -1."""
    *of_crops, whole = (torch.tensor(view, dtype=torch.float32).reshape(-1, 1) for view in cells)
    separate = -torch.ones(1)
    fused = fuse(torch.stack(of_crops) if of_crops else None, whole, of.crops, separate, separate)
    return fused[:, 0].numpy()


def brightest(view: np.ndarray, margin_px: int) -> np.ndarray:
    """Give the highest level in each cell, grown by a margin or, where that is negative, without its edges."""
    grown = np.pad(view, max(margin_px, 0))
    first, side = max(-margin_px, 0), CELL + 2 * margin_px
    starts = range(first, len(view) + first, CELL)
    return np.array([[grown[y : y + side, x : x + side].max() for x in starts] for y in starts])


def seen_at(page: Page, rect: Rect, of: Kind) -> tuple[int, int] | None:
    """Paint the middle of ``rect``: the view that it is read in and the image token; None at a cell's edge."""
    x, y = (rect.x1 + rect.x2) / 2, (rect.y1 + rect.y2) / 2
    light = painted(page, [Rect(x - 5, y - 5, x + 5, y + 5)], of)
    view = int(np.argmax([levels.max() for levels in light[:-1] or light]))
    rows, columns = np.nonzero(light[view] >= LIT)
    row, column = (int((lit.min() + lit.max() + 1) / 2) for lit in (rows, columns))
    if any(min(at % CELL, CELL - at % CELL) < NEAR_PX for at in (row, column)):
        return None
    marks = [np.zeros((len(levels) // CELL, len(levels) // CELL)) for levels in light]
    marks[view][row // CELL, column // CELL] = 1
    return view, int(np.argmax(tokens(marks, of)))


@pytest.mark.parametrize(("preset", "grid", "seed"), READ)
def test_the_token_over_a_words_middle_is_asked_for_the_word(preset: str, grid: Grid, seed: int) -> None:
    of = kind(preset, grid)
    page, row = generate(seed, grid=grid), make_row(seed, of, BACKEND)
    words = [(block, word) for block in page.blocks for word in block.words]
    assert len(words) == len(row.words)
    first = len(words) // 3
    seen = [seen_at(page, word.rect, of) for _, word in words[first : first + 6]]
    assert any(seen)
    for n, at in enumerate(seen, start=first):
        token, _, following = row.words[n]
        assert at is None or at[1] == token, words[n]
        if n + 1 < len(words) and words[n + 1][0] is not words[n][0]:
            assert following == UNKNOWN
        elif at and n + 1 < first + len(seen) and (after := seen[n + 1 - first]):
            assert following == (row.words[n + 1][1] if after[0] == at[0] else UNKNOWN)


@pytest.mark.parametrize("seed", range(5, 45, 4))
def test_a_word_is_asked_by_the_token_that_the_answer_has_for_it(seed: int) -> None:
    page = generate(seed)
    for grounded in (True, False):
        found = first_ids(page, page.answer(grounded=grounded), BACKEND)
        for block, ids in zip(page.blocks, found, strict=True):
            for word, first in zip(block.words, ids, strict=True):
                text = TOKENIZER.decode([first]).strip()
                assert text
                assert word.text.startswith(text)


def test_a_page_number_is_not_found_in_its_own_box() -> None:
    number = Block("page_number", (Rect(901, 901, 990, 990),), "90", (Word("90", Rect(905, 905, 980, 980)),))
    page = Page("made", 0, Image.new("RGB", (999, 999)), (number,))
    [[first]] = first_ids(page, page.answer(grounded=True), BACKEND)
    assert TOKENIZER.decode([first]) == "90"


@pytest.mark.parametrize(("preset", "grid", "seed"), READ[1::2])
def test_empty_tokens_are_those_that_see_no_word(preset: str, grid: Grid, seed: int) -> None:
    of = kind(preset, grid)
    page, row = generate(seed, grid=grid), make_row(seed, of, BACKEND)
    light = painted(page, [word.rect for block in page.blocks for word in block.words], of)
    inked, near_ink = (tokens([brightest(view, px) for view in light], of) for px in (-NEAR_PX, NEAR_PX))
    read = np.arange(of.image_tokens) < of.crop_tokens if of.crop_tokens else np.ones(of.image_tokens, bool)
    assert len(row.empty) == of.image_tokens
    assert not row.empty[inked >= LIT].any()
    assert not row.empty[~read | (inked < 0)].any(), "newlines, separator, and what is not read"
    assert row.empty[read & (near_ink >= 0) & (near_ink < LIT / 8)].all()
    assert row.empty.any()


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_no_word_is_asked_of_a_view_that_is_too_small(preset: str) -> None:
    row = make_row(4, kind(preset, (2, 3)), BACKEND)
    assert not row.words
    assert not row.empty.any()


@pytest.mark.parametrize(("preset", "grid", "seed"), LAID_OUT)
def test_a_cell_of_the_whole_view_knows_the_block_over_its_middle(preset: str, grid: Grid, seed: int) -> None:
    of = kind(preset, grid)
    page, row = generate(seed, grid=grid), make_row(seed, of, BACKEND)
    parts = [(LABELS.index(block.label), rect) for block in page.blocks for rect in block.rects]
    light = np.array([painted(page, [rect], of)[-1] for _, rect in parts])
    side, checked = light.shape[1] // CELL, 0
    labels, rects, edges = (part.reshape(side, side + 1, -1) for part in (row.labels, row.rects, row.edges))
    assert not labels[:, side].any(), "a newline is no cell"
    for y, x in np.ndindex(side, side):
        around = light[:, y * CELL :, x * CELL :][:, :CELL, :CELL].reshape(len(parts), CELL, CELL)
        middle = around[:, 32 - NEAR_PX : 32 + NEAR_PX, 32 - NEAR_PX : 32 + NEAR_PX].reshape(len(parts), -1)
        over = [n for n in range(len(parts)) if middle[n].min() >= LIT]
        if len(over) == 1 and (middle.max(axis=1) >= LIT).sum() == 1:
            label, rect = parts[over[0]]
            assert labels[y, x, 0] == 1 + label
            assert rects[y, x] == pytest.approx(np.array(rect) / np.array([*page.image.size] * 2), abs=1e-6)
            assert edges[y, x] == pytest.approx(sides(light[over[0]], y, x), abs=NEAR_PX / CELL)
            checked += 1
        elif around.max() < LIT / 8:
            assert labels[y, x, 0] == 0 or brightest(light.max(axis=0), NEAR_PX)[y, x] >= LIT / 8
    assert checked >= 5


def sides(light: np.ndarray, y: int, x: int) -> list[float]:
    """Measure left, top, right and bottom of what is lit, from a cell's corner, in cells, kept to -0.5 and 1.5."""
    rows, columns = np.flatnonzero((light >= LIT).any(axis=1)), np.flatnonzero((light >= LIT).any(axis=0))
    found = (columns[0] / CELL - x, rows[0] / CELL - y, (columns[-1] + 1) / CELL - x, (rows[-1] + 1) / CELL - y)
    return [float(np.clip(side, -0.5, 1.5)) for side in found]
