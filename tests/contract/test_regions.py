from __future__ import annotations

import re
from contextlib import suppress

import pytest
from PIL import Image

from pytest_dsocr.contract.drawing import MAX_FIGURE_PX, MAX_JPEG_SIDE_PX, crop_figure, place
from pytest_dsocr.contract.markup import PixelBox, parse
from pytest_dsocr.contract.mmd import clean_output
from pytest_dsocr.foundation.errors import DsocrError
from tests.contract.recorded_outputs import PAGE_SIZE, Recorded, each_recorded_output
from tests.vendor_live.outputs import span


@each_recorded_output
def test_figures_have_the_vendors_numbers_and_sizes(recorded: Recorded) -> None:
    page = Image.new("RGB", PAGE_SIZE)
    figures: dict[str, list[int]] = {}
    for region in place(parse(clean_output(recorded.text)).spans, *PAGE_SIZE):
        if region.figure is not None:
            with suppress(DsocrError):
                figures[f"{region.figure}.jpg"] = list(crop_figure(page, region.pixels).size)
    assert figures == recorded.figures


def test_figures_are_numbered_by_box_and_failed_ones_count() -> None:
    text = (
        span("image", "[[5, 5, 1, 1], [0, 0, 9, 9]]")
        + span("image ", "[[0, 0, 9, 9]]")
        + span("image", "[[0, 0, 9], [0, 0, 9, 9]]")
        + span("image", "[[0, 0, 9, 9]]")
    )
    assert [region.figure for region in place(parse(text).spans, 999, 999)] == [0, 1, None, 2]


@pytest.mark.parametrize(
    ("box", "problem"),
    [
        ("[0, 0, 999, 999]", None),
        ("[1, 1, 2, 2]", None),
        ("[5, 1, 4, 2]", "inverted"),
        ("[1, 5, 2, 4]", "inverted"),
        ("[5, 5, 5, 9]", "no area"),
        ("[5, 5, 9, 5.9]", "no area"),
        ("[-1, 0, 9, 9]", "beyond the page of 999 x 999 px"),
        ("[0, 0, 9, 1000]", "beyond the page"),
        ("[0, 0, 1000, 9]", "beyond the page"),
    ],
)
def test_a_degenerate_box_is_named(box: str, problem: str | None) -> None:
    (region,) = place(parse(span("text", f"[{box}]")).spans, 999, 999)
    assert region.problem is None if problem is None else re.search(f"'text' box .*{problem}", str(region.problem))


def test_a_figure_is_cut_from_the_page_and_black_beyond_it() -> None:
    page = Image.linear_gradient("L").convert("RGB")
    figure = crop_figure(page, PixelBox(-2, 250, 3, 258))
    assert figure.size == (5, 8)
    assert figure.getpixel((0, 0)) == figure.getpixel((4, 7)) == (0, 0, 0)
    assert figure.getpixel((4, 0)) == page.getpixel((2, 250))


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1)])
def test_the_smallest_figure_is_a_pixel(size: tuple[int, int]) -> None:
    assert crop_figure(Image.new("RGB", (10, 10)), PixelBox(0, 0, *size)).size == size


@pytest.mark.parametrize(
    "pixels",
    [
        PixelBox(5, 5, 5, 9),
        PixelBox(9, 5, 5, 9),
        PixelBox(5, 5, 9, 5),
        PixelBox(5, 9, 9, 5),
        PixelBox(0, 0, MAX_JPEG_SIDE_PX + 1, 2),
        PixelBox(0, 0, 10_000, MAX_FIGURE_PX // 10_000 + 1),
        PixelBox(2**31, 0, 2**31 + 5, 5),
        PixelBox(-(10**300), 0, 5, 5),
    ],
)
def test_what_gives_no_figure_is_refused(pixels: PixelBox) -> None:
    with pytest.raises(DsocrError, match="figure"):
        crop_figure(Image.new("RGB", (10, 10)), pixels)
