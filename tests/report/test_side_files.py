"""Both sides of a case as files: what is in them, how large they get, and that nothing is written through a link."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.contract.markup import Box
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import unseal
from pytest_dsocr.observation.observation import SpanSeen
from pytest_dsocr.report.side_files import write_sides
from tests.compare.made import OUTPUT
from tests.report.made import report

NAMES = ["info.json", "result.mmd", "result_with_boxes.jpg"]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_side_has_its_text_boxes_shapes_and_picture(tmp_path: Path) -> None:
    out = write_sides(report(tmp_path), tmp_path / "case")
    sides = {side: unseal((out / side / "info.json").read_bytes()) for side in ("reference", "subject")}
    for side, info in sides.items():
        assert files_in(out / side) == NAMES
        assert (out / side / "result.mmd").read_text() == OUTPUT.mmd
        assert info["text"] == OUTPUT.text
        assert info["spans"][1] == {"label": "image", "boxes": [[5, 6, 7, 8], [9, 10, 11, 12]]}
        assert info["boxes"][2] == {"label": "image", "x": 2, "y": 4, "w": 1, "h": 0}
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
    boxes = (Box(math.nan, 0, 5, 5), Box(0, 0, math.inf, 5), Box(-1e300, 0, 1e300, 9), *[Box(0, 0, 9, 9)] * 50_000)
    said: dict[str, Any] = {
        "text": "\ud800\x00" * 3_000_000,
        "mmd": "\udfff" * 3_000_000,
        "spans": (SpanSeen("\ud800", boxes),),
    }
    out = write_sides(report(tmp_path, **said), tmp_path / "case") / "subject"
    assert files_in(out) == NAMES
    assert all((out / name).stat().st_size < 4_000_000 for name in NAMES)
    assert unseal((out / "info.json").read_bytes())["text"].startswith("\\ud800\x00")


@pytest.mark.parametrize("place", ["case/reference", "case"])
def test_nothing_is_written_through_a_link(tmp_path: Path, place: str) -> None:
    (tmp_path / "victim" / "reference").mkdir(parents=True)
    (tmp_path / "victim" / "info.json").write_text("kept")
    (tmp_path / "victim" / "reference" / "info.json").write_text("kept")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "victim")
    assert files_in(write_sides(report(tmp_path), tmp_path / "case") / "reference") == NAMES
    assert {path.read_text() for path in (tmp_path / "victim").rglob("info.json")} == {"kept"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DsocrError, match="cannot be written"):
        write_sides(report(tmp_path), tmp_path / "file" / "case")
