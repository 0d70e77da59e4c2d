"""The table of other implementations: each row names a subject that can be had, and what is kept makes the page."""

import json
from pathlib import Path
from typing import Any

import pytest

from ci.implementations.__main__ import ROWS, expanded, main, rows_of
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.subjects.loading import adapter_of, level_before_loading
from tests.recordings import FILES

FORK = "cpu-win-fork"
OF_FIRST, OF_UNLIMITED = ["L2", "L1", "L1", "L1", "L1", "L3", "L3", "L0", "L0"], ["L3", "L1", "L1", "L2", "L0"]
LEVELS = dict(zip(ROWS, OF_FIRST + OF_UNLIMITED, strict=True))


def files(folder: Path, *names: str, text: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)


def test_a_rows_subject_is_of_the_tables_level(tmp_path: Path) -> None:
    files(program := tmp_path / "build" / "bin", "llama-mtmd-cli", text="#!/bin/sh\n")
    (program / "llama-mtmd-cli").chmod(0o755)
    files(tmp_path / "fork", *FILES)
    for name, row in ROWS.items():
        subject = expanded(row.subject, {"WORK": str(tmp_path)})
        if adapter := adapter_of(subject):
            adapter.offers(subject)
        assert str(level_before_loading(subject)).startswith(LEVELS[name]), name


def test_a_row_says_what_its_user_must_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [FORK, f"--work={tmp_path}/work"]
    assert main(command) == 2
    assert "--vendor=FOLDER" in capsys.readouterr().err
    files(tmp_path, *FILES)
    assert main([*command, f"--vendor={tmp_path}"]) == 2
    assert f"a clone of {ROWS[FORK].repository} at commit 3d57463; name its folder: --s" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def run(folder: Path, **changed: Any) -> Path:
    def test(outcome: str, *compared: tuple[str, str, float | str | None]) -> dict[str, Any]:
        found = [dict(zip(("what", "verdict", "error"), one, strict=True)) for one in compared]
        return {"outcome": outcome, "ended_as": "wrong" if outcome == "failed" else "passes", "comparisons": found}

    tests = [
        test("passed", ("input_ids/image", "MATCH", None), ("sam.page/3", "DRIFT", 2e-6), ("sam.page", "DRIFT", 4e-6)),
        test("failed", ("images_ori", "WRONG", "infinite"), ("text", "NOT-COMPARED", None), ("sampled", "WRONG", 9.0)),
        test("skipped"),
    ]
    head = {"status": "finished", "started": "2026-11-22T20:00:00+00:00", "run": {"level": "L2"}, "tests": tests}
    (path := folder / "dsocr.json").write_text(json.dumps({**head, **changed}))
    return path


def test_a_run_makes_a_row_of_each_table(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match="did not come to its end"):
        rows_of("xinference", run(tmp_path, status="running"))
    of_run, of_stages = rows_of("xinference", run(tmp_path))
    assert of_run.endswith("| `xinference` | xinference 4.1.0 | L2 | 2026-11-22 | 1 of 2 |")
    assert of_stages == f"| `xinference` | = | . | x 1 of 1 | . | =, 4e-06 |{' . |' * 6}"
