"""The typeset pages: that the truth is what is on them, and that they are pages the embedded checkpoint could read."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import combinations
from statistics import mean

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from ci.training.generator import PAD_PX
from ci.training.lexicon import FIRST_WORDS, LABELS, WORDS
from ci.training.page import Block, Page, Rect
from ci.training.typeset import COURIER, HELVETICA, SETTINGS, TIMES, Setting, typeset
from ci.training.typeset.sheet import LEADING, SCALES, SMALL, Sheet, Style
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.presets import CROP_PX, crop_grid
from pytest_dsocr.foundation.errors import DsocrError

Mask = npt.NDArray[np.bool_]

every_page = pytest.mark.parametrize("name", SETTINGS)
INK_LEVELS = 24
FORMS = {
    "title": r"# .+",
    "sub_title": r"## .+",
    "image": r"",
    "image_caption": r"<center>Figure \d: .+</center>",
    "table": r"<table>(<tr>(<td>[^<]+</td>){2,4}</tr>){2,6}</table>",
    "table_caption": r"<center>Table \d: .+</center>",
    "equation": r"\\\[ .+ = .+ \\\]",
}
KNOWN = {*WORDS, *(word.capitalize() for word in WORDS), *FIRST_WORDS}
STYLE = Style(HELVETICA, 17, "#000000", "#ffffff")


@cache
def page_of(name: str) -> Page:
    return typeset(name)


def ink(page: Page) -> Mask:
    """Where the page is not as its corner is, ``[H, W]``."""
    difference = np.abs(np.asarray(page.image, np.int16) - np.asarray(page.image.getpixel((0, 0)), np.int16))
    grey = Image.fromarray(difference.astype(np.uint8)).convert("L")
    return np.asarray(grey) > INK_LEVELS


def pixels(rect: Rect) -> tuple[slice, slice]:
    x1, y1, x2, y2 = (round(side) for side in rect)
    return slice(y1, y2), slice(x1, x2)


def padding(page: Page) -> tuple[float, float]:
    columns, rows = crop_grid(*page.image.size)
    return PAD_PX * page.image.width / (CROP_PX * columns), PAD_PX * page.image.height / (CROP_PX * rows)


def rects(page: Page) -> list[Rect]:
    return [rect for block in page.blocks for rect in block.rects]


def words(block: Block) -> list[str]:
    return [word.text for word in block.words]


def test_the_set_is_eight_pages_of_one_font_and_two_of_each_other() -> None:
    fonts = Counter(setting.font for setting in SETTINGS.values())
    assert fonts == {HELVETICA: 8, TIMES: 2, COURIER: 2}
    assert all(name.endswith(("_helvetica", "_times", "_courier")) for name in SETTINGS)


def test_the_set_has_pages_of_every_sort() -> None:
    pages = [page_of(name) for name in SETTINGS]
    grids = Counter(crop_grid(*page.image.size) for page in pages)
    assert set(grids) == {(2, 3), (3, 2), (2, 2), (1, 3)}
    assert grids[2, 3] >= 6
    assert {block.label for page in pages for block in page.blocks} == set(LABELS)
    assert any(len(block.rects) == 2 for page in pages for block in page.blocks)
    assert 50 <= mean(sum(len(block.words) for block in page.blocks) for page in pages) <= 70


@every_page
def test_a_page_is_of_a_size_that_can_be_learned(name: str) -> None:
    page = page_of(name)
    assert 2 <= len(page.blocks) <= 14
    assert 20 <= sum(len(block.words) for block in page.blocks) <= 110


@every_page
def test_type_is_as_large_as_a_vision_token_can_read(name: str) -> None:
    setting = SETTINGS[name]
    for crops, side_pt in zip(crop_grid(*page_of(name).image.size), setting.size_pt, strict=True):
        body_px = setting.body_pt * crops * CROP_PX / side_pt
        assert 34 <= body_px <= 48
        assert 60 <= body_px * SCALES["title"] <= 96
        assert 48 <= body_px * SCALES["sub_title"] <= 64
        assert body_px * SMALL >= 32
        assert body_px * LEADING >= 50


@every_page
def test_the_answer_says_where_everything_is(name: str) -> None:
    page = page_of(name)
    markup = parse(page.answer(grounded=True))
    assert markup.problems == ()
    assert [(span.label, span.text) for span in markup.spans] == [(block.label, block.text) for block in page.blocks]
    boxes = [[tuple(box) for box in span.boxes] for span in markup.spans]
    assert boxes == [[page.units(rect) for rect in block.rects] for block in page.blocks]


@every_page
def test_a_text_holds_its_words_in_order_and_nothing_else(name: str) -> None:
    for block in page_of(name).blocks:
        printed = re.sub(r"</?(?:table|tr|td|center)>|\\\[ | \\\]|^#+ ", " ", block.text)
        assert printed.split() == words(block)


@every_page
def test_a_text_has_the_form_of_its_label(name: str) -> None:
    for block in page_of(name).blocks:
        assert re.fullmatch(FORMS.get(block.label, r"[^#<\\]+"), block.text)


@every_page
def test_words_are_of_the_lexicon(name: str) -> None:
    for block in page_of(name).blocks:
        parts = [part for word in words(block) for part in re.findall(r"[A-Za-z]+", word)]
        assert [
            part for part in parts if part not in KNOWN and not (block.label == "equation" and len(part) == 1)
        ] == []


@every_page
def test_no_ink_is_outside_the_boxes(name: str) -> None:
    page = page_of(name)
    left = ink(page).copy()
    for rect in rects(page):
        left[pixels(rect)] = False
    assert not left.any()


@every_page
def test_no_ink_of_a_text_is_outside_its_words(name: str) -> None:
    page = page_of(name)
    left = ink(page).copy()
    for block in page.blocks:
        for rect in [word.rect for word in block.words] or block.rects:
            left[pixels(rect)] = False
    for rect in (rect for block in page.blocks if block.label == "table" for rect in block.rects):
        left[pixels(rect)] = False  # its rules
    assert not left.any()


@every_page
def test_boxes_are_ink_and_four_pixels_around_it(name: str) -> None:
    page = page_of(name)
    mask, (across, down) = ink(page), padding(page)
    for x1, y1, x2, y2 in rects(page):
        inner = mask[pixels(Rect(x1 + across, y1 + down, x2 - across, y2 - down))]
        assert inner[0].any()
        assert inner[-1].any()
        assert inner[:, 0].any()
        assert inner[:, -1].any()
        assert inner.sum() == mask[pixels(Rect(x1, y1, x2, y2))].sum()


@every_page
def test_each_word_is_the_bounds_of_its_ink_and_lies_in_its_block(name: str) -> None:
    page = page_of(name)
    mask = ink(page)
    for block in page.blocks:
        for word in block.words:
            inner = mask[pixels(word.rect)]
            assert all(edge.any() for edge in (inner[0], inner[-1], inner[:, 0], inner[:, -1]))
            assert any(inside(word.rect, rect) for rect in block.rects)
    of_words = [word.rect for block in page.blocks for word in block.words]
    assert all(apart(a, b) > 0 for a, b in combinations(of_words, 2))


@every_page
def test_boxes_are_apart(name: str) -> None:
    page = page_of(name)
    assert all(apart(a, b) >= 2 * max(padding(page)) for a, b in combinations(rects(page), 2))


def inside(inner: Rect, outer: Rect) -> bool:
    return outer.x1 <= inner.x1 and outer.y1 <= inner.y1 and inner.x2 <= outer.x2 and inner.y2 <= outer.y2


def apart(a: Rect, b: Rect) -> float:
    """The gap between two rects in pixels, across or down, whichever is wider; negative where they overlap."""
    return max(a.x1 - b.x2, b.x1 - a.x2, a.y1 - b.y2, b.y1 - a.y2)


def test_a_page_is_the_same_in_another_process() -> None:
    name = "two_columns_helvetica"
    code = (
        "import hashlib, sys; from ci.training.typeset import typeset; page = typeset(sys.argv[1]);"
        "print(hashlib.sha256(page.image.tobytes() + repr(page.blocks).encode()).hexdigest())"
    )
    hashes = {
        subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(hashes) == 1
    assert repr(typeset(name).blocks) == repr(page_of(name).blocks)


def test_seeds_differ() -> None:
    seeds = [setting.seed for setting in SETTINGS.values()]
    assert len(set(seeds)) == len(seeds)
    assert len({page_of(name).answer(grounded=False) for name in SETTINGS}) == len(SETTINGS)


def test_a_page_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        DsocrError, match=r"^there is no typeset page 'novel'; give one of article_helvetica, .*courier$"
    ):
        typeset("novel")


@pytest.mark.parametrize("package", ["reportlab", "pypdfium2"])
def test_what_is_not_installed_is_named(package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from pytest_dsocr.foundation.errors import DsocrError\n"
        "from ci.training.typeset import typeset\n"
        "try: typeset('list_courier')\n"
        "except DsocrError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"setting pages needs {package}; pip install 'pytest-dsocr[typeset]'"


def test_truth_that_is_not_on_the_sheet_is_refused() -> None:
    sheet = Sheet(300, 300, STYLE)
    sheet.column(20, 20, 200).text("text", "Copper &amp;")
    with pytest.raises(DsocrError, match=r"^PDFium reads '&' where '&amp;' was set; use another version of pypdfium2$"):
        sheet.page("test", 0, 72)


def test_a_block_that_cannot_be_seen_is_refused() -> None:
    sheet = Sheet(300, 300, STYLE)
    sheet.put("image", "", "", Rect(20, 20, 90, 90))
    with pytest.raises(DsocrError, match=r"^nothing is drawn in \(20, 20, 90, 90\) pt of the sheet; set it inside"):
        sheet.page("test", 0, 72)


def test_the_name_says_kind_and_font() -> None:
    assert Setting("list", 1, TIMES, (600, 600), 72).name == "list_times"
