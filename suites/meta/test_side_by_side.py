"""The page twice: the same where both sides read the same, and only then."""

from __future__ import annotations

from dataclasses import replace

from PIL import Image, ImageChops

from pytest_dsocr.side_by_side import HEAD_PX, LARGEST_PX, MARGIN_PX, side_by_side
from suites.meta.compare.made import OUTPUT

BOX = "<|ref|>text<|/ref|><|det|>[[100, 100, 500, 500]]<|/det|>"
OTHER = "<|ref|>text<|/ref|><|det|>[[100, 600, 500, 900]]<|/det|>"


def panes(sheet: Image.Image) -> tuple[Image.Image, Image.Image]:
    width = (sheet.width - 3 * MARGIN_PX) // 2
    left, right = MARGIN_PX, 2 * MARGIN_PX + width
    bottom = sheet.height - MARGIN_PX
    return sheet.crop((left, HEAD_PX, left + width, bottom)), sheet.crop((right, HEAD_PX, right + width, bottom))


def test_equal_outputs_give_equal_panes() -> None:
    both = replace(OUTPUT, text=BOX)
    reference, subject = panes(side_by_side(Image.new("RGB", (300, 400), "white"), both, both, "MATCH"))
    assert ImageChops.difference(reference, subject).getbbox() is None
    assert reference.getcolors() != [(reference.width * reference.height, (255, 255, 255))], "no box was drawn"


def test_each_pane_has_its_own_sides_boxes() -> None:
    page = Image.new("RGB", (300, 400), "white")
    sheet = side_by_side(page, replace(OUTPUT, text=BOX), replace(OUTPUT, text=OTHER), "WRONG")
    tops = []
    for pane in panes(sheet):
        drawn = ImageChops.difference(pane, Image.new("RGB", pane.size, "white")).getbbox()
        assert drawn is not None
        tops.append(drawn[1] / pane.height)
    assert tops[0] < 0.2 < 0.5 < tops[1]


def test_large_pages_fit_a_screen() -> None:
    sheet = side_by_side(Image.new("RGB", (600, 5000)), OUTPUT, OUTPUT, "MATCH")
    assert sheet.height <= LARGEST_PX[1] + HEAD_PX + MARGIN_PX
    assert sheet.width <= 2 * LARGEST_PX[0] + 3 * MARGIN_PX
