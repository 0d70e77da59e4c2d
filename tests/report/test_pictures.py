"""Both sides of a case: the page twice, where what differs stands out, and the files of each side."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_dsocr.base.files import unseal
from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.contract.markup import UNITS, Box, to_mmd
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.reference_result import Output, SpanSeen, spans_in
from pytest_dsocr.report.case_result import picture_name
from pytest_dsocr.report.file import mark_running
from pytest_dsocr.report.pictures import BLUE, FOOT_PX, GREY, HEAD_PX, LARGEST_PX, MARGIN_PX, RED, draw, side_by_side
from pytest_dsocr.report.side_files import write_sides
from tests.compare.made import OUTPUT
from tests.report.made import LIMITS, MATCH, exchange, new_result, report

Spans = Sequence[SpanSeen]
HERE, NEAR, FAR = Box(100, 100, 500, 300), Box(120, 110, 540, 330), Box(100, 700, 500, 900)


def test_each_of_several_pages_has_a_picture_and_its_own_boxes(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("a", "b"):
        Image.new("RGB", (600, 400), "white").save(folder / f"{name}.png")
    case = make_case(folder, "pages", "base", family=MODELS["unlimited_ocr"])
    first = "<PAGE><|det|>text [100, 100, 500, 300]<|/det|><PAGE>"
    said = exchange(tmp_path, text=first)
    output = replace(said.expected.output, text=f"{first}<|det|>text [9, 9, 90, 90]<|/det|>")
    made = CaseReport(replace(said, case=case, expected=replace(said.expected, output=output)), (MATCH,), LIMITS)
    with Image.open(draw(made, tmp_path)) as picture:
        assert picture.height == 2 * (600 + HEAD_PX + FOOT_PX)
    sides = write_sides(made, tmp_path / "sides")
    assert len([*sides.glob("*/result_with_boxes_[01].jpg")]) == 4
    info = unseal((sides / "reference" / "info.json").read_bytes())
    assert [(box["page"], box["x"]) for box in info["boxes"]] == [(0, 60), (1, 5)]


def text(*boxes: Box, label: str = "text") -> tuple[SpanSeen, ...]:
    """Return a span for each box."""
    return tuple(SpanSeen(label, (box,)) for box in boxes)


def panes(reference: Spans, subject: Spans, size: tuple[int, int] = (600, 800)) -> list[Image.Image]:
    """Return the reference's side and the subject's, without head and legend."""
    sheet = side_by_side(Image.new("RGB", size, "white"), reference, subject, "WRONG")
    width = sheet.width // 2 - 2 * MARGIN_PX
    lefts = (MARGIN_PX, sheet.width // 2 + MARGIN_PX)
    return [sheet.crop((left, HEAD_PX, left + width, sheet.height - FOOT_PX)) for left in lefts]


def colours(pane: Image.Image, box: Box | None = None) -> set[tuple[int, ...]]:
    """Return which of grey, blue and red a pane has, or the lower edge of a box, which no label covers."""
    if box is not None:
        y = round(box.y2 / UNITS * (pane.height - 1))
        x1, x2 = (round(x / UNITS * (pane.width - 1)) for x in (box.x1, box.x2))
        pane = pane.crop((x1, y - 3, x2, y + 4))
    return {colour for _, colour in pane.getcolors(1 << 20) or () if isinstance(colour, tuple)} & {GREY, BLUE, RED}


@pytest.mark.parametrize(
    ("subject", "box", "seen"),
    [
        (text(NEAR, FAR), HERE, ({BLUE}, {BLUE, RED})),  # a side of the red box crosses it
        (text(NEAR, FAR), NEAR, (set(), {RED})),
        (text(HERE, label="title") + text(FAR), HERE, ({BLUE}, {BLUE, RED})),
        (text(FAR), HERE, ({BLUE}, {BLUE})),
        (text(HERE), FAR, ({BLUE}, {BLUE})),
        (text(HERE, FAR, Box(600, 400, 900, 500)), Box(600, 400, 900, 500), (set(), {RED})),
        (text(HERE, FAR, HERE), HERE, ({GREY}, {RED})),
    ],
    ids=["moved", "moved_to", "renamed", "missing", "missing_last", "surplus", "read_twice"],
)
def test_what_differs_is_blue_for_the_reference_and_red_for_the_subject(
    subject: Spans, box: Box, seen: tuple[set[object], set[object]]
) -> None:
    both = panes(text(HERE, FAR), subject)
    assert tuple(colours(pane, box) for pane in both) == seen


@pytest.mark.parametrize(
    "box", [Box(1e300, -1e300, 5, 5), Box(math.inf, 0, -math.inf, 9), Box(*[math.nan] * 4), Box(999, 999, 999, 999)]
)
def test_a_box_that_lies_nowhere_is_drawn_on_the_page_and_no_error(box: Box) -> None:
    panes(text(box, label="a\nlabel \x1b[2J" + "long" * 99), text(box, HERE), (40, 30))


def test_a_case_is_drawn_into_the_runs_folder(tmp_path: Path) -> None:
    path = draw(report(tmp_path, spans=()), tmp_path / "out")
    assert path == tmp_path / "out" / picture_name("page-tiny-free")
    with Image.open(path) as sheet:
        middle = sheet.width // 2
        assert sheet.width == 2 * (LARGEST_PX[0] + 2 * MARGIN_PX)
        sides = [sheet.crop((left, HEAD_PX, left + middle, sheet.height - FOOT_PX)) for left in (0, middle)]
    reds, blues = ([np.asarray(side)[..., channel].astype(int) for side in sides] for channel in (0, 2))
    blue = [int((b - r > 99).sum()) for r, b in zip(reds, blues, strict=True)]
    assert blue[0] > 2 * blue[1] > 0, "the reference's boxes, and where the subject ought to have them"


# Files.

NAMES = ["images/0.jpg", "info.json", "result.mmd", "result_with_boxes.jpg"]
FIGURE = "<|ref|>image<|/ref|><|det|>[[100, 100, 500, 300]]<|/det|>\n"


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def both_say(folder: Path, said: str, kept: Path | None = None) -> CaseReport:
    """Return a case on which both sides say the same."""
    found = exchange(folder, text=said, spans=spans_in(said, DEEPSEEK_OCR.form), mmd=to_mmd(said, DEEPSEEK_OCR.form))
    output = Output(said, spans_in(said, DEEPSEEK_OCR.form), to_mmd(said, DEEPSEEK_OCR.form), {}, kept)
    return CaseReport(replace(found, expected=replace(found.expected, output=output)), (MATCH,), LIMITS)


def test_both_sides_have_the_figures_that_their_markdown_links_to(tmp_path: Path) -> None:
    out = write_sides(both_say(tmp_path, f"{FIGURE}A chart\n\n{FIGURE}A chart again"), tmp_path / "case")
    for side in ("reference", "subject"):
        links = re.findall(r"!\[\]\((.*?)\)", (out / side / "result.mmd").read_text())
        assert links == ["images/0.jpg"] * 2, "equal spans share a link"
        with Image.open(out / side / links[0]) as figure:
            assert figure.size == (120, 80)
        boxes = unseal((out / side / "info.json").read_bytes())["boxes"]
        place = {"x": 30, "y": 40, "w": 120, "h": 80, "label": "image"}
        assert boxes == [{**place, "text": "A chart"}, {**place, "text": "A chart again"}]


def test_files_of_the_vendors_own_code_are_kept_for_the_reference(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "images").mkdir(parents=True)
    (kept / "images/0.jpg").write_text("the vendor's")
    out = write_sides(both_say(tmp_path, FIGURE, kept), tmp_path / "case")
    assert files_in(out / "reference") == files_in(out / "subject") == NAMES
    vendors = {side: (out / side / "images/0.jpg").read_bytes() == b"the vendor's" for side in ("reference", "subject")}
    assert vendors == {"reference": True, "subject": False}
    assert not kept.exists()


def test_each_side_has_its_text_boxes_shapes_and_picture(tmp_path: Path) -> None:
    out = write_sides(report(tmp_path), tmp_path / "case")
    sides = {side: unseal((out / side / "info.json").read_bytes()) for side in ("reference", "subject")}
    for side, info in sides.items():
        assert files_in(out / side) == NAMES
        assert (out / side / "result.mmd").read_text() == OUTPUT.mmd
        assert info["text"] == OUTPUT.text
        assert info["spans"][1] == {"label": "image", "boxes": [[5, 6, 7, 8], [9, 10, 11, 12]]}
        assert info["boxes"][0] == {"label": "title", "x": 0, "y": 0, "w": 0, "h": 1, "text": "Minutes"}
        assert info["boxes"][2] == {"label": "image", "x": 2, "y": 4, "w": 1, "h": 0, "text": ""}
        assert info["page"] == {"width": 300, "height": 400}
        assert len(info["token_ids"]) == 3
        assert info["shapes"].keys() >= {"input_ids", "images_seq_mask", "images_crop", "images_ori"}
        assert info["image_tokens"] > 0
    assert (sides["reference"]["seconds"], sides["subject"]["seconds"]) == (0.25, 1.5)
    assert sides["reference"]["files"]["images/0.jpg"] == 812


def test_what_a_subject_did_not_come_to_is_not_there(tmp_path: Path) -> None:
    out = write_sides(
        report(tmp_path, text="", spans=(), inputs=None, forced=None, lost=frozenset(("read",))), tmp_path / "case"
    )
    assert (files_in(out / "reference"), files_in(out / "subject")) == (NAMES, ["info.json"])
    assert unseal((out / "subject" / "info.json").read_bytes())["shapes"] is None


def test_whatever_a_subject_reads_the_files_are_small_and_whole(tmp_path: Path) -> None:
    boxes = (Box(math.nan, 0, 5, 5), Box(0, 0, math.inf, 5), Box(-1e300, 0, 1e300, 9), *[Box(0, 0, 9, 9)] * 6_000)
    said: dict[str, Any] = {
        "text": "\ud800\x00" * 300_000,
        "mmd": "\udfff" * 300_000,
        "spans": (SpanSeen("\ud800", boxes),),
    }
    out = write_sides(report(tmp_path, **said), tmp_path / "case") / "subject"
    assert files_in(out) == NAMES[1:]
    assert all((out / name).stat().st_size < 4_000_000 for name in NAMES[1:])
    assert unseal((out / "info.json").read_bytes())["text"].startswith("\\ud800\x00")


@pytest.mark.parametrize("place", ["pages/case/reference", "pages/case", "pages"])
def test_nothing_is_written_through_a_link(tmp_path: Path, place: str) -> None:
    for folder in ("", "reference", "case/reference"):
        (tmp_path / "victim" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "victim" / folder / "info.json").write_text("kept")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "victim")
    mark_running(tmp_path, new_result().identity)
    assert files_in(write_sides(report(tmp_path), tmp_path / "pages/case") / "reference") == NAMES
    assert {path.read_text() for path in (tmp_path / "victim").rglob("info.json")} == {"kept"}
