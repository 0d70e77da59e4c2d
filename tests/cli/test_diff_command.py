"""``dsocr diff`` as a user runs it, on files that runs have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.report.file import mark_running, write_json
from tests.report.made import BAD, GOOD, new_result, night


def written(folder: Path, result: dict[str, Any]) -> str:
    folder.mkdir()
    return str(write_json(folder, result))


def test_its_status_and_its_markdown_say_what_became_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = written(tmp_path / "old", night(*GOOD)), written(tmp_path / "new", night(*BAD))
    markdown = tmp_path / "diff.md"
    assert main(["diff", old, str(tmp_path / "new"), f"--markdown={markdown}"]) == 1
    assert "became wrong    a, clip.page" in capsys.readouterr().out
    assert "became wrong    a, clip.page" in markdown.read_text(encoding="utf-8")
    assert main(["diff", new, old]) == 0
    assert main(["diff", old, old]) == 0


def test_what_is_unfinished_or_no_result_is_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path / "old", night(*GOOD))
    mark_running(tmp_path / "new", new_result().identity)
    assert main(["diff", old, str(tmp_path / "new")]) == 12
    assert "not finished" in capsys.readouterr().err
    assert main(["diff", old, str(tmp_path / "nowhere")]) == 12
    assert main(["diff", old, written(tmp_path / "damaged", {**night(*GOOD), "tests": [5]})]) == 12
    other = json.loads(Path(old).read_text(encoding="utf-8"))
    other["run"]["key"] = "another"
    assert main(["diff", old, written(tmp_path / "other", other)]) == 12
    assert "obstacle        the references' keys differ" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_a_bad_command_line(tmp_path: Path) -> None:
    old = written(tmp_path / "old", night(*GOOD))
    assert main(["diff", old, old, f"--markdown={tmp_path}/no/such/folder.md"]) == 2
