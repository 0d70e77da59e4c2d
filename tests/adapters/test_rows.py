"""The table of other implementations: each row names a subject that can be had, and what is kept makes the page."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ci.implementations import __main__ as implementations
from ci.implementations.__main__ import BEGIN, END, PAGE, ROWS, cell, environment_of, expanded, keep, main, page_of
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.subjects.loading import level_before_loading, way_of

NAME, FORK = "xinference", "cpu-win-fork"
LEVELS = dict(zip(ROWS, ["L2", "L1", "L1", "L1", "L1", "L3", "L3", "L0", "L0"], strict=True))


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
        if way := way_of(subject):
            way.check(subject)
        assert str(level_before_loading(subject)).startswith(LEVELS[name]), name


def test_a_row_says_what_its_user_must_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [FORK, f"--work={tmp_path}/work"]
    assert main(command) == 2
    assert "--vendor=FOLDER" in capsys.readouterr().err
    files(tmp_path, *FILES)
    assert main([*command, f"--vendor={tmp_path}"]) == 2
    assert f"a clone of {ROWS[FORK].repository} at commit 3d57463; name its folder: --s" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
    assert [name for name, row in ROWS.items() if row.needs("VENDOR")] == [
        "xinference",
        "llm-perf-opt",
        *list(ROWS)[5:7],
    ]


def test_a_forks_files_lie_over_the_vendors(tmp_path: Path) -> None:
    files(tmp_path / "vendor", *FILES)
    files(tmp_path / "clone" / "model", FILES[0], "other.py", text="expected")
    variables = environment_of(ROWS[FORK], tmp_path, tmp_path / "clone", tmp_path / "vendor")
    script = "\n".join(line for line in ROWS[FORK].setup.splitlines() if not line.startswith("pip "))
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=variables, check=True, stderr=subprocess.DEVNULL)
    found = {path.name: path.read_text() for path in (tmp_path / "fork").iterdir()}
    assert found == {FILES[0]: "expected", **dict.fromkeys(FILES[1:], "")}


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(implementations, "KEPT", tmp_path / "kept")
    return tmp_path


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


def test_a_run_is_kept_stage_by_stage_and_makes_the_page(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DsocrError, match="did not come to its end"):
        keep(NAME, run(nowhere, status="running"))
    keep(NAME, run(nowhere))
    found = implementations.read_kept(NAME)
    assert found
    cells = {stage: cell(one) for stage, one in found["stages"].items()}
    assert {stage: one for stage, one in cells.items() if one != "."} == {
        "ids": "=",
        "page's view": "x 1 of 1",
        "SAM": "=, 4e-06",
    }
    monkeypatch.setattr(implementations, "PAGE", page := nowhere / "page.md")
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert main(["--page"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n| implementation |")
    assert text.endswith(f"{END}\nafter\n")
    assert "| `xinference` | xinference 4.1.0 | L2 | 2026-11-22 | 1 of 2 |" in text
    assert "| `mlx-vlm` | mlx-vlm 0.7.10 | no run kept |  |  |" in text
    assert "old" not in text


def test_the_page_is_made_of_what_is_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_of(page) == page, "run: python -m ci.implementations --page"
    kept = {name: found for name in ROWS if (found := implementations.read_kept(name))}
    assert {name: found["version"] for name, found in kept.items()} == {name: ROWS[name].version for name in kept}
