from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_dsocr.contract.artifacts import Artifacts, write_artifacts
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.foundation.errors import DsocrError
from tests.contract.recorded_outputs import PAGE_SIZE, Recorded, each_recorded_output
from tests.vendor_live.outputs import GEOMETRY, IMAGE, PAGE, TEXT, TITLE, span

ORIENTATION, ROTATED = 0x0112, 6


def page() -> Image.Image:
    """A page whose every pixel tells where it is."""
    y, x = np.mgrid[0:300, 0:200]
    return Image.fromarray(np.stack([x, y // 2, (x + y) // 2], axis=-1).astype(np.uint8))


def picture(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.copy()


def written(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def info_of(directory: Path) -> Any:
    return json.loads((directory / "info.json").read_text(encoding="utf-8"))


@each_recorded_output
def test_the_files_are_the_vendors_and_info_json(recorded: Recorded, tmp_path: Path) -> None:
    artifacts = write_artifacts(recorded.text, Image.new("RGB", PAGE_SIZE), tmp_path)
    figures = {f"images/{name}": tuple(size) for name, size in recorded.figures.items()}
    vendors = {*recorded.files, *figures, "result_with_boxes.jpg"} - {"geo.jpg"}  # the boxes are not reached on errors
    assert (tmp_path / "result.mmd").read_bytes() == recorded.mmd.encode()
    assert {name: picture(tmp_path / name).size for name in figures} == figures
    assert written(tmp_path) == {path.relative_to(tmp_path).as_posix() for path in artifacts.paths}
    assert written(tmp_path) == vendors | {"info.json"}
    assert picture(tmp_path / "result_with_boxes.jpg").size == PAGE_SIZE
    assert artifacts.problems or recorded.error is None


def test_info_tells_boxes_in_pixels_with_their_text(tmp_path: Path) -> None:
    write_artifacts(
        f"Before {TITLE}\n# 稀土\n{span('text', '[[0, 0, 999, 999], [333, 333, 666, 666]]')} b{EOS}", page(), tmp_path
    )
    info = info_of(tmp_path)
    text = {"label": "text", "text": "b", "problem": None, "span": 1}
    assert info["page"] == {"width": 200, "height": 300}
    assert info["preamble"] == "Before"
    assert info["boxes"] == [
        {"x": 18, "y": 18, "w": 163, "h": 12, "label": "title", "text": "# 稀土", "problem": None, "span": 0},
        {"x": 0, "y": 0, "w": 200, "h": 300, **text},
        {"x": 66, "y": 100, "w": 67, "h": 100, **text},
    ]
    assert info["spans"][0]["raw"] == TITLE
    assert info["spans"][0]["boxes"] == [[94, 60, 905, 101]]
    assert (info["spans"][0]["start"], info["spans"][0]["end"]) == (7, 7 + len(TITLE))
    assert info["problems"] == []
    assert "稀土" in (tmp_path / "info.json").read_text(encoding="utf-8")  # readable as it stands


def test_problems_stand_in_the_record_and_in_info(tmp_path: Path) -> None:
    text = f"{span('text', '[[1, 2, 3')}{span('image', '[[9, 9, 5, 5]]')}<|ref|>"
    problems = write_artifacts(text, page(), tmp_path).problems
    assert [word for word in ("span 0", "outside any span", "inverted", "images/0.jpg") if word in str(problems)] == [
        "span 0",
        "outside any span",
        "inverted",
        "images/0.jpg",
    ]
    assert info_of(tmp_path)["problems"] == list(problems)
    assert info_of(tmp_path)["boxes"][0]["problem"] in problems


def test_figures_are_cut_from_the_clean_page(tmp_path: Path) -> None:
    write_artifacts(IMAGE + span("text", "[[150, 400, 400, 500]]"), page(), tmp_path)
    figure = np.asarray(picture(tmp_path / "images" / "0.jpg")).astype(int)
    clean = np.asarray(page()).astype(int)[96:180, 20:100]
    assert figure.shape == clean.shape
    assert np.abs(figure - clean).max() <= 12  # JPEG's own loss on a smooth page


def test_the_page_is_turned_as_its_exif_says(tmp_path: Path) -> None:
    image = page()
    image.getexif()[ORIENTATION] = ROTATED
    write_artifacts(span("image", "[[0, 0, 999, 500]]"), image, tmp_path)
    assert picture(tmp_path / "result_with_boxes.jpg").size == (300, 200)
    assert info_of(tmp_path)["page"] == {"width": 300, "height": 200}
    figure = np.asarray(picture(tmp_path / "images" / "0.jpg")).astype(int)
    assert figure.shape == (100, 300, 3)
    assert np.abs(figure[0, 299] - np.asarray(page())[0, 0]).max() <= 12  # the page's first pixel is upper right now


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "LA", "CMYK", "1"])
def test_a_page_of_any_mode_gives_jpegs(mode: str, tmp_path: Path) -> None:
    write_artifacts(IMAGE, page().convert(mode), tmp_path)
    assert picture(tmp_path / "images" / "0.jpg").mode == "RGB"
    assert picture(tmp_path / "result_with_boxes.jpg").mode == "RGB"


def test_a_geometry_figure_is_not_drawn_and_that_is_said(tmp_path: Path) -> None:
    artifacts = write_artifacts(GEOMETRY, page(), tmp_path)
    assert "geo.jpg" not in written(tmp_path)
    assert artifacts.problems == ("geo.jpg is not drawn; result.mmd holds its lines and points",)


def test_a_page_too_long_for_jpeg_is_a_problem_and_not_an_end(tmp_path: Path) -> None:
    artifacts = write_artifacts(TEXT, Image.new("RGB", (65501, 2)), tmp_path)
    assert written(tmp_path) == {"result.mmd", "info.json"}
    assert "result_with_boxes.jpg is not written" in artifacts.problems[-1]


def test_half_a_character_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match="half a character at offset 2"):
        write_artifacts("ab\ud800", page(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("obstacle", ["out", "out/images", "out/info.json/x"])
def test_a_directory_that_cannot_be_written_is_the_projects_error(obstacle: str, tmp_path: Path) -> None:
    (tmp_path / obstacle).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / obstacle).write_text("in the way")
    with pytest.raises(DsocrError, match=r"out.* cannot be written \(.+\)"):
        write_artifacts(IMAGE, page(), tmp_path / "out")
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.fixture
def disk_full_at_4096_bytes() -> Iterator[None]:
    """Let no file of this process grow beyond 4096 bytes."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("disk_full_at_4096_bytes")
def test_a_full_disk_leaves_whole_files_only(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match=r"result_with_boxes\.jpg cannot be written"):
        write_artifacts("text", Image.effect_noise((600, 600), 90), tmp_path)
    assert written(tmp_path) == {"result.mmd"}


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    artifacts = write_artifacts("text", page(), str(tmp_path / "a" / "b"))
    assert artifacts.paths[0] == tmp_path / "a" / "b" / "result.mmd"
    assert written(tmp_path / "a" / "b") == {"result.mmd", "result_with_boxes.jpg", "info.json"}


def test_files_get_the_usual_permissions_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    plain = tmp_path / "plain"
    plain.write_text("")
    write_artifacts(PAGE, page(), tmp_path)
    assert (tmp_path / "result.mmd").stat().st_mode == plain.stat().st_mode
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_writers_that_share_a_directory_do_not_mix_their_files(tmp_path: Path) -> None:
    texts = [f"{IMAGE}{writer} " * 40 for writer in "abcdefgh"]

    def write(text: str) -> Artifacts:
        return write_artifacts(text, page(), tmp_path)

    with ThreadPoolExecutor(len(texts)) as pool:
        seen = {tuple(map(os.fspath, artifacts.paths)) for artifacts in pool.map(write, texts)}
    assert len(seen) == 1
    mmd = (tmp_path / "result.mmd").read_text()
    assert len(set(mmd.replace("![](images/0.jpg)", "").split())) == 1
    assert len({box["text"] for box in info_of(tmp_path)["boxes"]}) == 1
    assert written(tmp_path) == {Path(path).relative_to(tmp_path).as_posix() for path in next(iter(seen))}
