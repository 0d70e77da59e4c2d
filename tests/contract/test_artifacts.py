"""The files that an output leaves: those of the vendor, figures, and the page with its boxes."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.artifacts import Artifacts, overlay_of, write_artifacts
from pytest_dsocr.contract.drawing import (
    MAX_FIGURE_PX,
    MAX_JPEG_SIDE_PX,
    Stroke,
    crop_figure,
    draw_boxes,
    draw_outline,
    label_colour,
    place,
)
from pytest_dsocr.contract.markup import PixelBox, parse
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.contract.recorded import GEOMETRY, IMAGE, PAGE_SIZE, TEXT, UNLIMITED, Recorded, each_recorded_output, span

PAGE = Image.new("RGB", (200, 300))
LABELS = ["title", "sub_title", "text", "image", "image_caption", "table", "table_caption", "equation", "list"]


def picture(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.copy()


def written(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


@each_recorded_output
def test_the_files_are_the_vendors(recorded: Recorded, tmp_path: Path) -> None:
    sizes = [(width, height) for width, height in recorded.pages or [list(PAGE_SIZE)]]
    pages = [Image.new("RGB", size) for size in sizes]
    artifacts = write_artifacts(recorded.text, pages if recorded.pages else pages[0], tmp_path, recorded.form)
    figures = {f"images/{name}": tuple(size) for name, size in recorded.figures.items()}
    numbers = range(len(recorded.read)) if recorded.pages else [None]
    overlays = {overlay_of(number): size for number, size in zip(numbers, sizes, strict=False)}
    vendors = {*recorded.files, *figures, *overlays} - {"geo.jpg"}  # the boxes are not reached on errors
    assert (tmp_path / recorded.form.result_file).read_bytes() == recorded.mmd.encode()
    assert {name: picture(tmp_path / name).size for name in {**figures, **overlays}} == {**figures, **overlays}
    assert written(tmp_path) == {path.relative_to(tmp_path).as_posix() for path in artifacts.paths}
    assert written(tmp_path) == vendors
    assert artifacts.problems or recorded.error is None


def test_problems_of_pages_are_named_by_page(tmp_path: Path) -> None:
    problems = write_artifacts(f"<PAGE>a<PAGE>{span('text', '?')}", [PAGE] * 3, tmp_path, UNLIMITED).problems
    assert [problem[:21] for problem in problems] == ["the output is of 2 pa", "page 1: span 0 at off"]


def test_every_problem_is_reported(tmp_path: Path) -> None:
    text = f"{span('text', '[[1, 2, 3')}{span('image', '[[9, 9, 5, 5]]')}<|ref|>{GEOMETRY}"
    problems = write_artifacts(text, PAGE, tmp_path, DEEPSEEK_OCR.form).problems
    words = ("span 0", "outside any span", "inverted", "geo.jpg", "images/0.jpg")
    assert [word for word in words for problem in problems if word in problem] == [*words]


def test_a_page_too_long_for_jpeg_is_a_problem_and_not_an_end(tmp_path: Path) -> None:
    artifacts = write_artifacts(TEXT, Image.new("RGB", (65501, 2)), tmp_path, DEEPSEEK_OCR.form)
    assert written(tmp_path) == {"result.mmd"}
    assert "result_with_boxes.jpg is not written" in artifacts.problems[-1]


def test_half_a_character_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match="half a character at offset 2"):
        write_artifacts("ab\ud800", PAGE, tmp_path / "out", DEEPSEEK_OCR.form)
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_the_projects_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(DsocrError, match=r"out.* cannot be written \(.+\)"):
        write_artifacts(IMAGE, PAGE, tmp_path / "out", DEEPSEEK_OCR.form)


def test_writers_that_share_a_directory_do_not_mix_their_files(tmp_path: Path) -> None:
    texts = [f"{IMAGE}{writer} " * 40 for writer in "abcdefgh"]
    (tmp_path / "notes.txt").write_text("mine")

    def write(text: str) -> Artifacts:
        return write_artifacts(text, PAGE, tmp_path, DEEPSEEK_OCR.form)

    with ThreadPoolExecutor(len(texts)) as pool:
        [paths] = {tuple(map(os.fspath, artifacts.paths)) for artifacts in pool.map(write, texts)}
    mmd = (tmp_path / "result.mmd").read_text()
    assert len(set(mmd.replace("![](images/0.jpg)", "").split())) == 1
    assert written(tmp_path) == {"notes.txt", *(Path(path).relative_to(tmp_path).as_posix() for path in paths)}
    assert (tmp_path / "result.mmd").stat().st_mode == (tmp_path / "notes.txt").stat().st_mode


@pytest.mark.parametrize(
    ("box", "problem"),
    [
        ("[0, 0, 999, 999]", None),
        ("[5, 1, 4, 2]", "inverted"),
        ("[1, 5, 2, 4]", "inverted"),
        ("[5, 5, 9, 5.9]", "no area"),
        ("[-1, 0, 9, 9]", "beyond the page of 999 x 999 px"),
        ("[0, 0, 9, 1000]", "beyond the page"),
    ],
)
def test_a_degenerate_box_is_named(box: str, problem: str | None) -> None:
    (region,) = place(parse(span("text", f"[{box}]"), DEEPSEEK_OCR.form).spans, 999, 999)
    assert region.problem is None if problem is None else re.search(f"'text' box .*{problem}", str(region.problem))


@pytest.mark.parametrize(
    "pixels",
    [
        PixelBox(5, 5, 5, 9),
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


def test_a_figure_is_black_beyond_the_page() -> None:
    figure = crop_figure(Image.new("RGB", (10, 10), "red"), PixelBox(-2, 8, 3, 12))
    assert figure.size == (5, 4)
    assert [figure.getpixel(at) for at in ((0, 0), (2, 0), (4, 3))] == [(0, 0, 0), (255, 0, 0), (0, 0, 0)]


# The page with its boxes.


def drawn(text: str, width: int = 999, height: int = 999) -> Image.Image:
    return draw_boxes(Image.new("RGB", (width, height), "white"), parse(text, DEEPSEEK_OCR.form).spans)


def test_labels_have_dark_colours_of_their_own() -> None:
    assert (label_colour("title"), label_colour("formula")) == ((198, 40, 40), (17, 118, 87))
    assert len({label_colour(label) for label in LABELS}) == len(LABELS)
    assert all(min(label_colour(label)) < 128 for label in ("标题", "", "\ud800", *map(str, range(50))))


@pytest.mark.parametrize(("label", "size", "width_px"), [("title", 400, 4), ("text", 999, 2), ("text", 3000, 6)])
def test_outlines_are_at_least_the_vendors_and_grow_with_the_page(label: str, size: int, width_px: int) -> None:
    pixels = np.asarray(drawn(span(label, "[[300, 300, 900, 900]]"), size, size))
    row = (pixels[size // 2] == label_colour(label)).all(axis=-1).tolist()
    assert row[row.index(True) :].index(False) == width_px


def test_outline_stands_on_the_vendors_pixels_and_the_label_above_it() -> None:
    image = drawn(span("text", "[[100, 200, 700, 800]]"), 500, 1000)
    colour = label_colour("text")
    assert {image.getpixel(corner) for corner in ((50, 200), (350, 200), (50, 800), (350, 800))} == {colour}
    assert {image.getpixel(outside) for outside in ((49, 500), (351, 500), (200, 801))} == {(255, 255, 255)}
    assert 200 < min(np.array(image.getpixel((200, 500)))) < 255, "the inside is tinted"
    above = np.asarray(image)[:200, 51:80].reshape(-1, 3)
    assert (above == colour).all(axis=-1).any()
    assert ((above >= colour).all(axis=-1)).all(), "white letters on the colour"


def test_a_long_label_is_cut_and_kept_on_one_line_and_one_at_the_edge_on_the_page() -> None:
    pixels = np.asarray(drawn(span("w\n" * 500, "[[100, 200, 700, 800]]")))
    assert (pixels[:170] == 255).all()
    assert (pixels[:, 800:] == 255).all()
    assert drawn(span("text", "[[100, 0, 700, 800]]")).getpixel((110, 2)) == label_colour("text")
    narrow = drawn(span("table_caption", "[[300, 500, 700, 800]]"), width=40, height=400)
    assert narrow.getpixel((0, 192)) == label_colour("table_caption")


def test_a_dashed_outline_is_broken_on_all_four_sides() -> None:
    image = Image.new("RGB", (60, 60), "white")
    draw_outline(ImageDraw.Draw(image), PixelBox(10, 10, 50, 44), Stroke((255, 0, 0), 1, dashed=True))
    red = (np.asarray(image) == (255, 0, 0)).all(axis=2)
    dashes = {10, *range(11, 19), *range(26, 35), *range(42, 51)}
    assert {*np.flatnonzero(red[10]).tolist()} == {*np.flatnonzero(red[44]).tolist()} == dashes
    upright = {at for at in dashes if at <= 44}
    assert {*np.flatnonzero(red[:, 10]).tolist()} == {*np.flatnonzero(red[:, 50]).tolist()} == upright
    assert not red[11:44, 11:50].any()


@pytest.mark.parametrize(
    ("box", "point"),
    [
        ("[700, 800, 100, 200]", (100, 500)),
        ("[500, 100, 500, 900]", (500, 500)),
        ("[-50, 100, 100, 900]", (0, 500)),
        ("[2000, 100, 3000, 900]", (998, 500)),
        ("[1e299, -1e299, 500, 500]", (500, 200)),
    ],
)
def test_a_degenerate_box_is_drawn_where_it_meets_the_page(box: str, point: tuple[int, int]) -> None:
    assert drawn(span("text", f"[{box}]")).getpixel(point) == label_colour("text")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "1", "CMYK", "LA"])
def test_any_page_is_drawn_on_a_copy(mode: str) -> None:
    own = Image.new(mode, (300, 300))
    before = own.tobytes()
    image = draw_boxes(own, parse(span("标\0题\ud800", "[[100, 300, 900, 800]]"), DEEPSEEK_OCR.form).spans)
    assert (image.mode, own.mode, own.tobytes()) == ("RGB", mode, before)
    assert image.getpixel((29, 150)) != image.getpixel((31, 150))
    assert draw_boxes(Image.new(mode, (1, 1)), parse(TEXT, DEEPSEEK_OCR.form).spans).size == (1, 1)
