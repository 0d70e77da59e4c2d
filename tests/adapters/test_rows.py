"""The table's rows: each names a subject that can be had, and what is missing is told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ci.implementations.__main__ import main
from ci.implementations.rows import ROWS
from ci.implementations.work import Given, Work
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.level import Level
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.subjects.loading import level_before_loading, load_subject, way_of
from pytest_dsocr.subjects.protocol import Setup
from tests.checkout import CHECKOUT

LEVELS = {
    "mlx-vlm": Level.STAGES,
    "vllm-processor": Level.INPUTS,
    "sglang-processor": Level.INPUTS,
    "xinference": Level.INPUTS,
    "llm-perf-opt": Level.INPUTS,
    "cpu-win-fork": Level.MODULES,
    "by-device-fork": Level.MODULES,
    "llama-mtmd-cli": Level.TEXT,
    "llama-server": Level.TEXT,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rows_subject_is_of_the_tables_level(name: str, tmp_path: Path) -> None:
    for program in ("llama-mtmd-cli", "llama-server"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    files(tmp_path, *FILES)
    row = ROWS[name]
    named = row.program or row.is_fork
    subject = row.subject.format(bin=tmp_path, gguf=tmp_path, fork=tmp_path) if named else row.subject
    if way := way_of(subject):
        way.check(subject)
    assert level_before_loading(subject) is LEVELS[name]


def test_every_row_is_in_the_table() -> None:
    page = (CHECKOUT / "docs" / "implementations.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in ROWS)


@pytest.mark.skipif(bool(find_spec("mlx_vlm")), reason="mlx-vlm is here")
def test_mlx_that_is_not_here_is_told() -> None:
    with pytest.raises(
        DsocrError, match=r"mlx-vlm cannot be imported here \(.*; run: pip install 'mlx\[cpu\]' mlx-vlm"
    ):
        load_subject(ROWS["mlx-vlm"].subject, Setup())


def test_a_row_says_what_its_user_must_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cpu-win-fork", f"--work={tmp_path}/work"]
    assert main(command) == 2
    assert "needs the vendor's Python files; name their folder: --vendor=FOLDER" in capsys.readouterr().err
    files(tmp_path, *FILES)
    assert main([*command, f"--vendor={tmp_path}"]) == 2
    told = "a clone of https://github.com/kurokencom/DeepSeekOcrCPUWin at commit 3d57463; name its folder: --sources="
    assert told in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_forks_files_lie_over_the_vendors(tmp_path: Path) -> None:
    files(tmp_path / "vendor", *FILES)
    files(tmp_path / "clone" / "model", FILES[0], "other.py", text="theirs")
    (tmp_path / "work").mkdir()
    given = Given(tmp_path / "clone", tmp_path / "vendor")
    folder = Work(ROWS["cpu-win-fork"], tmp_path / "work", given).fork()
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert found == {FILES[0]: "theirs", **dict.fromkeys(FILES[1:], "")}


def files(folder: Path, *names: str, text: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)


def test_a_fork_that_lacks_a_file_is_refused(tmp_path: Path) -> None:
    files(tmp_path, *FILES[1:])
    way = way_of(spec := f"fork:{tmp_path}")
    assert way
    with pytest.raises(DsocrError, match=f"{tmp_path} lacks {FILES[0]}; give a folder with the vendor's Python files"):
        way.check(spec)


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["another", "--", "--no-skip"])
    assert caught.value.code == 2
    assert "invalid choice: 'another'" in capsys.readouterr().err
