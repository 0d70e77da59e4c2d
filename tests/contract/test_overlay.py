from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pytest_dsocr.contract.drawing import Stroke, draw_boxes, draw_outline, label_colour
from pytest_dsocr.contract.markup import PixelBox, parse
from tests.vendor_live.outputs import span

KNOWN_LABELS = ["title", "sub_title", "text", "image", "image_caption", "table", "table_caption", "equation", "list"]


def drawn(text: str, width: int = 999, height: int = 999) -> Image.Image:
    return draw_boxes(Image.new("RGB", (width, height), "white"), parse(text).spans)


def outline_px(image: Image.Image, label: str, y: int) -> int:
    """The width of the first run of the label's colour in row ``y``."""
    row = [image.getpixel((x, y)) == label_colour(label) for x in range(image.width)]
    return row[row.index(True) :].index(False)


@pytest.mark.parametrize(
    ("label", "colour"), [("title", (198, 40, 40)), ("formula", (17, 118, 87)), ("", (129, 18, 93))]
)
def test_a_label_has_one_colour_for_ever(label: str, colour: tuple[int, int, int]) -> None:
    assert label_colour(label) == colour


def test_the_usual_labels_are_told_apart() -> None:
    for one, other in combinations(KNOWN_LABELS, 2):
        assert np.abs(np.subtract(label_colour(one), label_colour(other))).max() >= 30, (one, other)


@pytest.mark.parametrize("label", [*KNOWN_LABELS, "formula", "标题", "", "x" * 1000, *map(str, range(200))])
def test_white_letters_are_legible_on_every_colour(label: str) -> None:
    red, green, blue = (
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in label_colour(label))
    )
    assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) >= 3.0  # WCAG, large or bold text


@pytest.mark.parametrize(
    ("label", "size", "width_px"),
    [
        ("title", 400, 4),
        ("text", 400, 2),
        ("title", 999, 4),
        ("text", 999, 2),
        ("title", 3000, 12),
        ("text", 3000, 6),
    ],
)
def test_outlines_are_at_least_the_vendors_and_grow_with_the_page(label: str, size: int, width_px: int) -> None:
    image = drawn(span(label, "[[300, 300, 900, 900]]"), size, size)
    assert outline_px(image, label, size // 2) == width_px


def test_outline_stands_on_the_vendors_pixels_and_the_inside_is_tinted() -> None:
    image = drawn(span("text", "[[100, 200, 700, 800]]"), 500, 1000)
    colour = label_colour("text")
    for corner in ((50, 200), (350, 200), (50, 800), (350, 800)):
        assert image.getpixel(corner) == colour
    assert image.getpixel((49, 500)) == image.getpixel((351, 500)) == image.getpixel((200, 801)) == (255, 255, 255)
    inside = np.array(image.getpixel((200, 500)))
    assert (inside < 255).all()
    assert (inside > 200).all()


def test_the_label_is_written_white_on_its_colour_above_its_box() -> None:
    pixels = np.asarray(drawn(span("text", "[[100, 200, 700, 800]]")))
    background = (pixels[:200, 101] == label_colour("text")).all(axis=-1)
    name = pixels[:200][background, 101:125]
    assert 12 <= len(name) <= 24
    assert (name == 255).all(axis=-1).any()
    assert (name >= label_colour("text")).all()


@pytest.mark.parametrize("label", ["w" * 1000, "a\nb\nc\nd"])
def test_a_long_label_is_cut_and_kept_on_one_line(label: str) -> None:
    pixels = np.asarray(drawn(span(label, "[[100, 200, 700, 800]]")))
    assert (pixels[:170] == 255).all()
    assert (pixels[:, 800:] == 255).all()


def test_a_label_wider_than_the_page_begins_at_its_edge() -> None:
    image = drawn(span("table_caption", "[[300, 500, 700, 800]]"), width=40, height=400)
    assert image.getpixel((0, 192)) == label_colour("table_caption")


def test_a_dashed_outline_is_broken_on_all_four_sides() -> None:
    image = Image.new("RGB", (60, 60), "white")
    draw_outline(ImageDraw.Draw(image), PixelBox(10, 10, 50, 44), Stroke((255, 0, 0), 1, dashed=True))
    red = (np.asarray(image) == (255, 0, 0)).all(axis=2)
    dashes = {0, *range(1, 9), *range(16, 25), *range(32, 41)}
    assert {*np.flatnonzero(red[10]).tolist()} == {*np.flatnonzero(red[44]).tolist()} == {10 + x for x in dashes}
    assert (
        {*np.flatnonzero(red[:, 10]).tolist()}
        == {*np.flatnonzero(red[:, 50]).tolist()}
        == {10 + y for y in dashes if y <= 34}
    )
    assert not red[11:44, 11:50].any()


def test_a_label_at_the_upper_edge_stays_on_the_page() -> None:
    image = drawn(span("text", "[[100, 0, 700, 800]]"))
    assert image.getpixel((110, 2)) == label_colour("text")


@pytest.mark.parametrize(
    ("box", "point"),
    [
        ("[700, 800, 100, 200]", (100, 500)),
        ("[500, 100, 500, 900]", (500, 500)),
        ("[900, 900, 1100, 5000]", (900, 950)),
        ("[-50, 100, 100, 900]", (0, 500)),
        ("[2000, 100, 3000, 900]", (998, 500)),
        ("[1e299, -1e299, 500, 500]", (500, 200)),
    ],
)
def test_a_degenerate_box_is_drawn_where_it_meets_the_page(box: str, point: tuple[int, int]) -> None:
    assert drawn(span("text", f"[{box}]")).getpixel(point) == label_colour("text")


@pytest.mark.parametrize("label", ["", "标题", "a\nb\0c", "\ud800", "very " * 100_000])
@pytest.mark.parametrize("size", [(1, 1), (32, 20), (999, 999)])
def test_any_label_on_any_page_is_drawn(label: str, size: tuple[int, int]) -> None:
    image = drawn(span(label, "[[100, 300, 900, 800]]"), *size)
    assert image.size == size
    assert image.getbbox() is not None


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "1", "CMYK", "LA"])
def test_the_page_itself_is_left_alone(mode: str) -> None:
    page = Image.new(mode, (300, 300))
    before = page.tobytes()
    image = draw_boxes(page, parse(span("text", "[[100, 300, 900, 800]]")).spans)
    assert (image.mode, page.mode, page.tobytes()) == ("RGB", mode, before)
    assert image.getpixel((29, 150)) != image.getpixel((31, 150))
