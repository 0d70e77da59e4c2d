"""``dsocr vendor inspect`` on a folder in our own words, by the interpreter that runs the tests."""

import platform
import shutil
import sys
from pathlib import Path

import pytest
import torch

from pytest_dsocr.cli.main import main
from pytest_dsocr.reference.anchors import modules_of, read_anchors
from pytest_dsocr.reference.drift import read_json
from pytest_dsocr.reference.environment import copies_of
from tests.recordings import FILES, SYMBOLS
from tests.reference.small_folder import CONFIG, DECODER, ENCODER, MAIN, change, write_small_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DSOCR_VENDOR_ENV", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_small_folder(tmp_path / "folder")


def test_without_an_environment_the_static_part_is_reported_and_written_down(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchors = tmp_path / "new" / "anchors.json"
    assert main(["vendor", "inspect", str(folder), "--anchors", str(anchors), "--write"]) == 0
    out = capsys.readouterr().out
    assert "environment  there is no environment for the vendor's code with Python" in out
    assert read_json(anchors) == read_anchors(folder)
    assert all(symbol in out for symbol in SYMBOLS)
    rows = [line.split(maxsplit=3) for line in out.splitlines() if f"{MAIN}:16" in line or f"{DECODER}:4" in line]
    assert [row[:2] for row in rows[:1]] == [["image", "gate"]]
    assert [row[-1] for row in rows] == ["if len(pages.views) > 3:", "past_key_values.update(ids)"]


def test_copies_in_transformers_cache_are_shown_with_what_differs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    copies = tmp_path / "hub/modules/transformers_modules/vendor/model"
    for name in ("equal", "remarked", "ungated", "without"):
        shutil.copytree(folder, copies / name)
    change(copies / "remarked", MAIN, "import json", "import json  # unused")
    change(copies / "ungated", MAIN, "> 3", "> 0")
    (copies / "without" / CONFIG).unlink()
    assert main(["vendor", "inspect", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith("copies       4 others in ")]
    assert [line.partition(": ")[0].strip() for line in lines[first + 1 : first + 7]] == [
        "vendor/model/equal",
        "vendor/model/remarked",
        "vendor/model/ungated",
        f"DeepseekOCRModel.forward, {MAIN}:13 (line 13 expected)",
        "code",
        f"image gate, {MAIN}:16",
    ]
    assert lines[first + 1].endswith("the same files")
    assert lines[first + 2].endswith(f"another {MAIN}, in comments or layout alone")
    assert f"lacks {CONFIG}" in lines[first + 7]
    assert copies_of(copies / "equal", copies) == [copies / name for name in ("remarked", "ungated", "without")]


@pytest.mark.dsocr_slow
def test_what_an_environment_lacks_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment, anchors = sys.prefix, str(tmp_path / "anchors.json")
    command = ["vendor", "inspect", str(folder), "--env", environment, "--anchors", anchors, "--write"]
    assert main(command) == 0
    imported = f"imported     with python {platform.python_version()}, torch {torch.__version__}, "
    assert imported in capsys.readouterr().out
    change(folder, CONFIG, "def DeepseekV2Config", "import torch, no_such_module\ndef DeepseekV2Config")
    assert main(command) == 10
    printed = capsys.readouterr()
    assert "No module named 'no_such_module'" in printed.err
    assert "; run in an environment with transformers==4.46.3, " in printed.err
    assert ["no_such_module", "any"] in [line.split() for line in printed.out.splitlines()]
    assert {path.name for path in folder.iterdir()} == {*FILES}, "nothing is written there"


def test_modules_are_those_of_third_parties_and_whether_they_must_be_there(folder: Path) -> None:
    change(folder, MAIN, "import json", "import json\nimport here.under\nif json:\n    from there.over import x")
    change(folder, ENCODER, "def quick_gelu", "import there as again\nfrom . import conversation\ndef quick_gelu")
    assert modules_of(folder) == {"here": True, "there": True}
    change(folder, ENCODER, "import there as again\n", "")
    assert modules_of(folder) == {"here": True, "there": False}
