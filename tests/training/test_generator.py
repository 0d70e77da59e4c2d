"""Pages from a seed: the same everywhere, of every promised sort, and with a truth that is true to their ink."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from ci.training.generator import GRIDS, PAD_PX, generate
from ci.training.kinds import KINDS
from ci.training.lexicon import FIRST_WORDS, LABELS, WORDS
from ci.training.page import Block, Page, Rect
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.presets import CROP_PX, Grid, crop_count, crop_grid
from pytest_dsocr.foundation.errors import DsocrError

DARK = 100
"""By how much ink is darker than paper; dust and a form's pale lines are less."""
PAGES = 120
EDGE_PX = 30
"""A slide's coloured edge may be as wide; no block comes as near to the paper's."""

Mask = npt.NDArray[np.bool_]
Size = tuple[int, int]
Written = list[tuple[str, tuple[Block, ...], Size]]
"""Kind, blocks and size of each page."""


def scale(page: Page) -> tuple[float, float]:
    """Give the page's pixels in a pixel at crop scale, across and down."""
    return scale_of(page.image.size)


def scale_of(size: tuple[int, int]) -> tuple[float, float]:
    columns, rows = crop_grid(*size)
    if not crop_count((columns, rows)):
        return 1.0, 1.0
    return size[0] / (CROP_PX * columns), size[1] / (CROP_PX * rows)


def ink(page: Page) -> Mask:
    red, green, blue = np.moveaxis(np.asarray(page.image), 2, 0)
    pixels = np.minimum(np.minimum(red, green), blue)
    dark: Mask = pixels < np.median(pixels) - DARK
    return dark


def cut(mask: Mask, rect: Rect) -> Mask:
    x1, y1, x2, y2 = (round(value) for value in rect)
    return mask[y1:y2, x1:x2]


def apart(one: Rect, other: Rect, scales: tuple[float, float]) -> float:
    """Give the gap between two rects at crop scale; less than 0 where they overlap."""
    across = max(one.x1, other.x1) - min(one.x2, other.x2)
    down = max(one.y1, other.y1) - min(one.y2, other.y2)
    return max(across / scales[0], down / scales[1])


def digest(page: Page) -> str:
    told = f"{page.kind} {page.image.size} {page.blocks}".encode()
    return hashlib.sha256(told + page.image.tobytes()).hexdigest()


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Page], Written]:
    """Few enough pages to look at every pixel of, and all pages without their images.

    The few are two of each kind, two of each whose texts run on, and some cut short.
    """
    seen: Counter[tuple[str, bool]] = Counter()
    kept, written = [generate(seed, level=0.4) for seed in range(6)], Written()
    for page in map(generate, range(PAGES)):
        written.append((page.kind, page.blocks, page.image.size))
        sort = page.kind, any(len(block.rects) > 1 for block in page.blocks)
        seen[sort] += 1
        if seen[sort] <= 2:
            kept.append(page)
    return kept, written


@pytest.fixture(scope="module")
def pages(drawn: tuple[list[Page], Written]) -> list[Page]:
    return drawn[0]


@pytest.fixture(scope="module")
def written(drawn: tuple[list[Page], Written]) -> Written:
    return drawn[1]


ASKED: list[tuple[float, Grid | None]] = [(1.0, None), (0.4, None), (1.0, (3, 2)), (0.0, (1, 1))]


def test_a_seed_gives_the_same_bytes_in_a_fresh_process() -> None:
    code = (
        "from tests.training.test_generator import ASKED, digest, generate\n"
        "for level, grid in ASKED: print(digest(generate(7, level=level, grid=grid)))"
    )
    command = [sys.executable, "-c", code]
    fresh = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"})
    assert fresh.stdout.split() == [digest(generate(7, level=level, grid=grid)) for level, grid in ASKED]


def test_seeds_and_levels_give_pages_of_their_own() -> None:
    digests = [digest(generate(seed, level=level, grid=(1, 2))) for seed in (1, 2) for level in (0.5, 1.0)]
    assert len(set(digests)) == 4


@pytest.mark.parametrize("grid", [*GRIDS, (3, 3), (4, 2), (1, 7)])
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_page_gets_the_grid_that_was_asked_for(grid: Grid, level: float) -> None:
    for seed in range(2):
        page = generate(seed, level=level, grid=grid)
        assert crop_grid(*page.image.size) == grid
        assert all(1 / 1.3 < factor < 1 / 0.75 for factor in scale(page))


def test_the_grids_have_their_shares(written: Written) -> None:
    grids = Counter(crop_grid(*size) for _, _, size in written)
    assert set(grids) == set(GRIDS)
    assert all(abs(100 * grids[grid] / PAGES - share) < 8 for grid, share in GRIDS.items())


@pytest.mark.parametrize(
    ("level", "grid", "message"),
    [
        (1.5, None, "there is no level 1.5 of pages; give one from 0 to 1"),
        (float("nan"), None, "there is no level nan of pages; give one from 0 to 1"),
        (1.0, (4, 3), "no page is cut into a grid of (4, 3); give one of up to 9 crops, or (1, 1)"),
    ],
)
def test_what_cannot_be_drawn_is_said(level: float, grid: Grid | None, message: str) -> None:
    with pytest.raises(DsocrError, match=re.escape(message)):
        generate(0, level=level, grid=grid)


def test_every_kind_and_label_occurs_and_several_boxes_in_a_few_percent(
    written: Written,
) -> None:
    blocks = [block for _, blocks, _ in written for block in blocks]
    assert {kind for kind, _, _ in written} == set(KINDS) - {"note"}
    assert {block.label for block in blocks} == set(LABELS)
    assert 0.01 < sum(len(block.rects) > 1 for block in blocks) / len(blocks) < 0.06


def test_a_full_page_has_2_to_14_blocks_and_at_most_120_words(written: Written) -> None:
    counts = [len(blocks) for _, blocks, _ in written]
    words = [sum(len(block.words) for block in blocks) for _, blocks, _ in written]
    assert min(counts) >= 2
    assert max(counts) <= 14
    assert 6 < np.mean(counts) < 9
    assert max(words) <= 120
    assert 40 < np.mean(words) < 65


@pytest.mark.parametrize(("level", "blocks", "words"), [(0.0, 1, 5), (0.25, 4, 40), (0.5, 7, 70)])
def test_a_lower_level_has_fewer_blocks_and_words(level: float, blocks: int, words: int) -> None:
    pages = [generate(seed, level=level) for seed in range(20)]
    assert max(len(page.blocks) for page in pages) == blocks
    assert min(len(page.blocks) for page in pages) >= 1
    assert max(sum(len(block.words) for block in page.blocks) for page in pages) <= words


def test_the_easiest_pages_have_large_words() -> None:
    for page in (generate(seed, level=0) for seed in range(20)):
        (block,) = page.blocks
        assert 1 <= len(block.words) <= 5
        heights = [(word.rect.y2 - word.rect.y1) / scale(page)[1] for word in block.words]
        assert max(heights) > 26


def test_an_answer_parses_into_the_blocks(pages: list[Page]) -> None:
    for page in pages:
        markup = parse(page.answer(grounded=True))
        assert not markup.problems
        assert not markup.preamble
        assert [span.label for span in markup.spans] == [block.label for block in page.blocks]
        assert [span.text for span in markup.spans] == [block.text for block in page.blocks]
        for span, block in zip(markup.spans, page.blocks, strict=True):
            assert [tuple(box) for box in span.boxes] == [page.units(rect) for rect in block.rects]


def test_texts_hold_their_words_in_order_and_little_else(written: Written) -> None:
    forms = {"title": "# {}", "sub_title": "## {}", "equation": r"\[ {} \]"}
    forms |= dict.fromkeys(("image_caption", "table_caption"), "<center>{}</center>")
    for block in (block for _, blocks, _ in written for block in blocks):
        text = re.sub("<.?t[a-z]+>", " ", block.text) if block.label == "table" else block.text
        printed = " ".join(word.text for word in block.words)
        assert " ".join(text.split()) == forms.get(block.label, "{}").format(printed)


def test_everything_printed_is_of_the_lexicon(written: Written) -> None:
    known = {*WORDS, *(word.capitalize() for word in WORDS), *FIRST_WORDS}
    number = re.compile(r"\$?\d{1,3}(\.(00|25|50|75))?%?")
    for word in (word.text for _, blocks, _ in written for block in blocks for word in block.words):
        bare = word.rstrip(".,:")
        assert bare in known or number.fullmatch(bare) or re.fullmatch("[a-z=+/-]", bare), word


def test_a_tables_text_is_rows_of_equally_many_cells(written: Written) -> None:
    tables = [block.text for _, blocks, _ in written for block in blocks if block.label == "table"]
    for text in tables:
        assert re.fullmatch(r"<table>(<tr>(<td>[^<]+</td>)+</tr>)+</table>", text)
        rows = [row.count("<td>") for row in text.split("</tr>")[:-1]]
        assert 2 <= len(rows) <= 6
        assert set(rows) <= {2, 3, 4}
        assert len(set(rows)) == 1
    assert len(tables) > 20


def test_a_caption_stands_beside_what_it_names(written: Written) -> None:
    for _, blocks, _ in written:
        labels = ["", *(block.label for block in blocks), ""]
        for before, label, after in zip(labels, labels[1:], labels[2:], strict=False):
            assert label != "image_caption" or before == "image"
            assert label != "table_caption" or "table" in (before, after)


def test_words_lie_on_ink_inside_a_box_of_their_block(pages: list[Page]) -> None:
    for page in pages:
        mask = ink(page)
        for block in page.blocks:
            for word in block.words:
                assert cut(mask, word.rect).any(), (page.seed, word)
                assert any(
                    rect.x1 <= word.rect.x1
                    and rect.y1 <= word.rect.y1
                    and rect.x2 >= word.rect.x2
                    and rect.y2 >= word.rect.y2
                    for rect in block.rects
                )


def test_words_do_not_lie_on_each_other(pages: list[Page]) -> None:
    for page in pages:
        words = [word for block in page.blocks for word in block.words]
        for one, other in pairwise(words):
            assert apart(one.rect, other.rect, (1, 1)) > 0, (page.seed, one, other)


def gaps_to_ink(mask: Mask) -> tuple[int, int, int, int]:
    """Count the rows and columns without ink at the left, top, right and bottom."""
    across, down = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    return across[0], down[0], mask.shape[1] - 1 - across[-1], mask.shape[0] - 1 - down[-1]


def texts(page: Page) -> Iterator[Rect]:
    for block in page.blocks:
        if block.label != "image":
            yield from block.rects


def test_boxes_are_their_inks_bounds_and_a_constant_pad(pages: list[Page]) -> None:
    for page in pages:
        mask = ink(page)
        pads = [PAD_PX * factor for factor in scale(page) * 2]
        for rect in texts(page):
            for gap, pad in zip(gaps_to_ink(cut(mask, rect)), pads, strict=True):
                assert -1.5 < gap - pad < 5, (page.seed, rect)


def test_no_ink_lies_outside_the_boxes(pages: list[Page]) -> None:
    for page in pages:
        mask = ink(page)
        mask[:, :EDGE_PX] = False
        for rect in (rect for block in page.blocks for rect in block.rects):
            cut(mask, rect)[:] = False
        assert not mask.any(), (page.seed, np.argwhere(mask)[:3])


def test_boxes_keep_apart_and_inside_the_page(written: Written) -> None:
    for seed, (_, blocks, size) in enumerate(written):
        for block in blocks:
            for rect in block.rects:
                assert 0 < rect.x1 < rect.x2 < size[0]
                assert 0 < rect.y1 < rect.y2 < size[1]
        boxes = [(number, rect) for number, block in enumerate(blocks) for rect in block.rects]
        scales = scale_of(size)
        for (one, left), (other, right) in combinations(boxes, 2):
            assert apart(left, right, scales) >= (16 if one != other else 0), (seed, left, right)
