"""Pages of a few words in unusual file forms; the text that ``mini`` reads shows how a file was decoded.

The words are cut out of the shipped pages in black and white. The pages are the same on every machine.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.pages.page_list import PAGES as SHIPPED
from pytest_dsocr.records.case import Case, make_case

from .asked import sizes_of
from .pages import ORIENTATION_TAG, ROTATED_BY_90

Levels = NDArray[np.uint8]
"""``[H, W]``, ink on paper."""
WORDS = {
    "Castle With": ("generated/letter_054", (32, 258, 417, 329)),
    "Is South Weather": ("typeset/two_columns_helvetica", (323, 102, 919, 179)),
    "July": ("generated/form_001", (41, 392, 235, 501)),
    "Random": ("generated/two_columns_005", (453, 452, 748, 532)),
}
"""Shipped page with these words, and their box in pixels: left, top, right, bottom."""
INK, PAPER, SIDE_PX = 0, 255, 600
D50 = 0xF6D6, 0x10000, 0xD32D
"""The white point of every ICC profile, in 65536ths."""
SRGB = (28580, 14582, 911), (25238, 46983, 6364), (9378, 3972, 46799)
"""Red, green and blue of sRGB at that white point, in 65536ths."""


def words(text: str) -> Levels:
    """Return words cut out of a shipped page, in black and white."""
    name, box = WORDS[text]
    with Image.open(SHIPPED / f"{name}.png") as page:
        return np.where(np.asarray(page.convert("RGB").crop(box)).min(2) < 128, INK, PAPER).astype(np.uint8)


def sheet(
    text: str = "Castle With", x: int = 20, y: int = 80, w: int = SIDE_PX, h: int = SIDE_PX, by: int = 1
) -> Levels:
    """Return a sheet of ``w`` x ``h`` pixels with words enlarged ``by`` times at (x, y), cut off at the edges."""
    page, ink = np.full((h, w), PAPER, np.uint8), words(text).repeat(by, 0).repeat(by, 1)[: h - y, : w - x]
    page[y : y + ink.shape[0], x : x + ink.shape[1]] = ink
    return page


def plain(*placed: Any) -> Image.Image:
    """Return :func:`sheet` as an image."""
    return Image.fromarray(sheet(*placed))


def turned() -> Image.Image:
    """Draw an oblong page on its side, which EXIF turns upright, in two colours with transparent ink."""
    page = Image.fromarray(sheet("July", 20, 80, 640, 400) // PAPER).transpose(Image.Transpose.ROTATE_90)
    page.putpalette([INK] * 3 + [PAPER] * 3)
    page.info["transparency"] = 0
    page.getexif()[ORIENTATION_TAG] = ROTATED_BY_90
    return page


def transparent() -> Image.Image:
    """Draw a page with transparent ink at the left and transparent paper at the right."""
    page, at_left = sheet(), np.arange(SIDE_PX) < SIDE_PX // 3
    return Image.fromarray(np.dstack([page, np.where((page == INK) == at_left, 0, 255).astype(np.uint8)]))


def two_texts(faint: int, paper: int) -> NDArray[np.uint16]:
    """Return words in level 0, and other words that appear only if levels are converted otherwise."""
    return np.where(sheet() == INK, INK, np.where(sheet("July") == INK, faint, paper)).astype(np.uint16)


def cmyk() -> Image.Image:
    """Draw words with the black channel only."""
    black = PAPER - sheet()
    return Image.frombytes("CMYK", (SIDE_PX, SIDE_PX), np.dstack([0 * black] * 3 + [black]).tobytes())


def with_profile() -> Image.Image:
    """Draw words in level 0 and others in 250 on 255, with an ICC profile that makes 0 white and 250 black."""
    page = Image.fromarray(two_texts(250, PAPER).astype(np.uint8)).convert("RGB")
    colours = [b"XYZ ".ljust(8, b"\0") + struct.pack(">3i", *colour) for colour in SRGB]
    curve = [65535 * (level not in range(128, 254)) for level in range(256)]
    tags = [*colours, *[b"curv" + struct.pack(">II256H", 0, len(curve), *curve)] * 3]
    at, table = 132 + 12 * len(tags), struct.pack(">I", len(tags))
    for name, tag in zip(("rXYZ", "gXYZ", "bXYZ", "rTRC", "gTRC", "bTRC"), tags, strict=True):
        table += struct.pack(">4sII", name.encode(), at, len(tag))
        at += len(tag)
    head = struct.pack(">I4sI4s4s4s12x4s28x3i", at, b"", 0x02100000, b"mntr", b"RGB ", b"XYZ ", b"acsp", *D50)
    page.info["icc_profile"] = head.ljust(128, b"\0") + table + b"".join(tags)
    return page


def on_every_second(seen: str = "Castle With", hidden: str = "July") -> NDArray[np.bool_]:
    """Return paper with words on all pixels but every second of every second row, and other words on these alone.

    A filter makes the other words faint. To take the nearest pixel at half the size shows nothing else.
    """
    paper, other = ((sheet(text) == PAPER).repeat(2, 0).repeat(2, 1) for text in (seen, hidden))
    at = np.zeros_like(paper)
    at[1::2, 1::2] = True
    drawn: NDArray[np.bool_] = np.where(at, other, paper)
    return drawn


def with_palette() -> Image.Image:
    """Draw :func:`on_every_second` in two colours."""
    page = Image.fromarray(on_every_second().astype(np.uint8))
    page.putpalette([INK] * 3 + [PAPER] * 3)
    return page


def repeated() -> Image.Image:
    """Draw one word in two columns and seven rows."""
    word = np.pad(words("Random"), ((0, 0), (10, 0)), constant_values=PAPER)
    return Image.fromarray(np.pad(np.tile(word, (7, 2)), ((10, 70), (0, 30)), constant_values=PAPER))


SAVED: Mapping[str, Mapping[str, Any]] = {"jpg": {"quality": 100}}
"""Options that keep a page of 8 x 8 blocks of one level as it is."""


class OddPage(NamedTuple):
    """Page to be read with the prompt for free OCR."""

    draw: Callable[[], Image.Image]
    checks: tuple[str, ...]
    """Things to check if the subject reads another text here, and on no page without them."""
    preset: str = "tiny"
    suffix: str = "png"

    def case(self, name: str, folder: Path, family: ModelSpec) -> Case:
        """Write the page losslessly into ``folder``, and return its case."""
        page, path = self.draw(), folder / f"{name}.{self.suffix}"
        page.save(path, exif=page.getexif(), icc_profile=page.info.get("icc_profile"), **SAVED.get(self.suffix, {}))
        return make_case(path, DEEPSEEK_OCR.prompts["free"], sizes_of(self.preset, family), 60, family=family)


def cut(check: str, *placed: Any) -> OddPage:
    """Return a page in Gundam whose text changes with its crops."""
    return OddPage(lambda: plain(*placed), (check,), "gundam")


COLOURS = "that a palette is made RGB, and its transparency dropped"
RGB_FIRST = "that a page of two levels or with a palette is made RGB before it is resized"
LATER = "that the later of two equally near grids is chosen if the page covers more than half of its area"
ODD_PAGES: Mapping[str, OddPage] = {
    "plain": OddPage(plain, ()),
    "turned": OddPage(turned, ("EXIF orientation", COLOURS, "squashing into a small view")),
    "transparent": OddPage(transparent, ("that alpha is dropped and not blended",)),
    "16_bit": OddPage(
        lambda: Image.fromarray(two_texts(65535, 300)), ("that levels are clipped at 255 and not scaled",)
    ),
    "cmyk": OddPage(cmyk, ("that CMYK is converted as Pillow does it and not inverted",), suffix="tif"),
    "with_profile": OddPage(with_profile, ("that no ICC profile is applied",)),
    "repeated": OddPage(repeated, ("that no_repeat_ngram_size is 20 and counts prompt and output",)),
    "exactly_640": cut("that a page is not cut if no side is longer than a crop's", "Castle With", 10, 40, 640, 640),
    "641_wide": cut("that a page is cut only if one side is longer than a crop's", "Random", 10, 40, 641, 320, 2),
    "tie": cut(LATER, "Castle With", 10, 40, 1240, 496, 2),
    "near_square": cut("that a page that is cut has two crops at least", "Castle With", 200, 300, 720, 720, 2),
    "large_jpeg": OddPage(
        lambda: plain("July", 400, 800, 2104, 2104, 8), ("that a JPEG is decoded at its full size",), "gundam", "jpg"
    ),
    "1_bit": OddPage(lambda: Image.fromarray(on_every_second()), (RGB_FIRST,)),
    "palette": OddPage(with_palette, (RGB_FIRST, COLOURS)),
    "small": OddPage(
        lambda: plain("Random", 4, 20, 200, 300), ("that a page below 320 px is enlarged once, by a bicubic filter",)
    ),
    "between_grids": cut("the nearest grid by width over height", "Is South Weather", 445, 466, 1398, 560),
}
"""All odd pages; ``odd-pages.json`` records the text that the vendor's code reads on each."""


def shared_checks(wrong: Iterable[str]) -> list[str]:
    """Return what all wrong odd pages have in common: anything else leaves one of them open."""
    first, *others = ([*ODD_PAGES[name].checks] for name in wrong)
    return [one for one in first if all(one in other for other in others)]
