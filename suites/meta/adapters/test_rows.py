"""The table's rows: each names a subject that can be had, and what is missing is told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ci.implementations.__main__ import main
from ci.implementations.rows import ROWS
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.observation.level import Level
from pytest_dsocr.subjects.loading import level_before_loading, load_subject
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.ways import way_of

LEVELS = {
    "mlx-vlm": Level.STAGES,
    "vllm-processor": Level.INPUTS,
    "sglang-processor": Level.INPUTS,
    "llama-mtmd-cli": Level.TEXT,
    "llama-server": Level.TEXT,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rows_subject_is_of_the_tables_level(name: str, tmp_path: Path) -> None:
    for program in ("llama-mtmd-cli", "llama-server"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    row = ROWS[name]
    subject = row.subject.format(bin=tmp_path, gguf=tmp_path) if row.program else row.subject
    if way := way_of(subject):
        way.check(subject)
    assert level_before_loading(subject) is LEVELS[name]


def test_every_row_is_in_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "implementations.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in ROWS)


@pytest.mark.skipif(bool(find_spec("mlx_vlm")), reason="mlx-vlm is here")
def test_mlx_that_is_not_here_is_told() -> None:
    with pytest.raises(
        DsocrError, match=r"mlx-vlm cannot be imported here \(.*; run: pip install 'mlx\[cpu\]' mlx-vlm"
    ):
        load_subject(ROWS["mlx-vlm"].subject, Setup())


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["another", "--", "--no-skip"])
    assert caught.value.code == 2
    assert "invalid choice: 'another'" in capsys.readouterr().err
