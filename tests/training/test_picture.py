"""The picture: the truth's frames around blocks, the answer's boxes on them, six pages of different kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageChops

from ci.training import picture
from ci.training.generator import generate
from ci.training.page import Block, Page, Rect
from ci.training.picture import TRUTH, contact_sheet, different_pages, draw_reading
from pytest_dsocr.contract.drawing import label_colour
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.foundation.errors import DsocrError

BLOCKS = (Block("text", (Rect(100, 200, 400, 300),), "Soup.", ()),)
PAGE = Page("note", 0, Image.new("RGB", (500, 800), "white"), BLOCKS)


def extent(image: Image.Image, colour: tuple[int, int, int]) -> tuple[int, int, int, int] | None:
    channels = ImageChops.difference(image, Image.new("RGB", image.size, colour)).split()
    apart = ImageChops.lighter(ImageChops.lighter(channels[0], channels[1]), channels[2])
    return apart.point(lambda level: 255 * (level == 0)).getbbox()


def test_the_truth_is_framed_from_outside_and_the_answer_drawn_on_it() -> None:
    drawn = draw_reading(PAGE, parse("<|ref|>table<|/ref|><|det|>[[0, 700, 999, 900]]<|/det|>"))
    found, answered = extent(drawn, TRUTH), extent(drawn, label_colour("table"))
    assert found is not None
    assert answered is not None
    frame = 800 // 160
    assert found == pytest.approx((100 - frame, 200 - frame, 401 + frame, 301 + frame), abs=1)
    assert (answered[0], answered[2]) == (0, 500)
    assert answered[3] == pytest.approx(0.9 * 800, abs=2)


def test_the_page_itself_stays_clean() -> None:
    draw_reading(PAGE, parse(PAGE.answer(grounded=True)))
    assert PAGE.image.getcolors() == [(500 * 800, (255, 255, 255))]


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 1), (4, 2), (6, 2)])
def test_panes_stand_three_to_a_row(count: int, rows: int) -> None:
    colours = [(200, 10 * k, 0) for k in range(count)]
    panes = [("name", Image.new("RGB", (1000, 1000), colour)) for colour in colours]
    sheet = contact_sheet(panes, "foot")
    assert sheet.width == 1800
    boxes = [extent(sheet, colour) for colour in colours]
    assert len({box[1] for box in boxes if box}) == rows
    assert len({box[0] for box in boxes if box}) == min(count, 3)
    assert all(box and (box[2] - box[0], box[3] - box[1]) == (584, 584) for box in boxes)


def test_each_page_is_of_another_kind() -> None:
    pages = list(different_pages(7))
    assert pages[-1].seed >= 7, "some kind came twice, and is here once"
    assert len({page.kind for page in pages}) == len(pages) == 7
    assert [page.seed for page in pages] == sorted(page.seed for page in pages)


def test_more_kinds_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "HELD_OUT_SEEDS", range(1))
    with pytest.raises(DsocrError, match="of 1 kinds"):
        list(different_pages(2))


def test_the_command_draws_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(picture, "CEILING", 2)
    monkeypatch.setattr(picture, "ROWS", 1)
    monkeypatch.setattr(picture, "different_pages", lambda count: [generate(k, grid=(1, 1)) for k in range(count)])
    path = tmp_path / "new" / "reading.png"
    assert picture.main(["--checkpoint", "synthetic:tiny", "--out", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "0 of" in lines[0]
    with Image.open(path) as sheet:
        assert (sheet.format, sheet.width) == ("PNG", 1800)
    assert lines[-1].startswith(f"written     {path}, 1800 x ")
