"""The table of other implementations is what their runs found: kept small, and made into the page by a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.implementations import kept
from ci.implementations.__main__ import main
from ci.implementations.kept import PAGE, Stage, keep, page_of, read_kept
from ci.implementations.rows import ROWS
from pytest_dsocr.foundation.errors import DsocrError

NAME = "xinference"
KEPT = [name for name in ROWS if read_kept(name)]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "KEPT", tmp_path / "kept")
    return tmp_path


def run(folder: Path, **changed: Any) -> Path:
    def test(outcome: str, *compared: tuple[str, str, float | str | None]) -> dict[str, Any]:
        names = ("what", "verdict", "error")
        found = [dict(zip(names, one, strict=True)) for one in compared]
        return {"outcome": outcome, "ended_as": "wrong" if outcome == "failed" else "passes", "comparisons": found}

    tests = [
        test("passed", ("input_ids/image", "MATCH", None), ("sam.page/3", "DRIFT", 2e-6), ("sam.page", "DRIFT", 4e-6)),
        test("failed", ("images_ori", "WRONG", "infinite"), ("text", "NOT-COMPARED", None), ("sampled", "WRONG", 9.0)),
        test("skipped"),
    ]
    head = {"status": "finished", "started": "2026-11-22T20:00:00+00:00", "run": {"level": "L2"}, "tests": tests}
    path = folder / "dsocr.json"
    path.write_text(json.dumps({**head, **changed}))
    return path


def test_a_run_is_kept_stage_by_stage(nowhere: Path) -> None:
    keep(NAME, ROWS[NAME], run(nowhere))
    found = read_kept(NAME)
    assert found
    assert (found.version, found.level, found.date) == ("xinference 4.1.0", "L2", "2026-11-22")
    assert (found.failed, found.tests) == (1, 2)
    cells = {stage: one.cell for stage, one in found.stages.items() if one.made}
    assert cells == {"ids": "=", "page's view": "x 1 of 1", "SAM": "=, 4e-06"}
    assert found.stages["text"] == Stage(0, 0, 0.0)
    assert found.stages["text"].cell == "."


def test_a_run_that_did_not_end_is_not_kept(nowhere: Path) -> None:
    with pytest.raises(DsocrError, match="is of a run that did not come to its end; run it again"):
        keep(NAME, ROWS[NAME], run(nowhere, status="running"))
    assert read_kept(NAME) is None


def test_a_page_is_made_of_what_is_kept(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = nowhere / "page.md"
    page.write_text(f"before\n{kept.BEGIN}\nold\n{kept.END}\nafter\n", encoding="utf-8")
    keep(NAME, ROWS[NAME], run(nowhere))
    monkeypatch.setattr("ci.implementations.__main__.PAGE", page)
    assert main(["--page"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{kept.BEGIN}\n| implementation |")
    assert text.endswith(f"{kept.END}\nafter\n")
    assert "| `xinference` | xinference 4.1.0 | L2 | 2026-11-22 | 1 of 2 |" in text
    assert "| `mlx-vlm` | mlx-vlm 0.7.10 | no run kept |  |  |" in text
    assert "old" not in text
    assert page_of(text) == text


def test_the_page_is_made_of_what_is_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_of(page) == page, "run: python -m ci.implementations --page"


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_of_the_version_that_the_row_names(name: str) -> None:
    found = read_kept(name)
    assert found
    assert found.version == ROWS[name].version, f"run: python -m ci.implementations {name} --keep"
