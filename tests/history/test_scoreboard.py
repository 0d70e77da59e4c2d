"""The table of implementations: what is kept of a run, the order of versions, and the page that it is put into."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.history.scoreboard import Kept, Tally, keep, read, tables
from tests.report.made import GOOD, night


def ended(outcome: str, *compared: tuple[str, str, float | str | None]) -> dict[str, Any]:
    found = [dict(zip(("what", "verdict", "error"), one, strict=True)) for one in compared]
    return {"outcome": outcome, "ended_as": "wrong" if outcome == "failed" else "passes", "comparisons": found}


RESULT: dict[str, Any] = {
    "started": "2026-11-22T20:00:00+00:00",
    "run": {"level": "L2"},
    "tests": [
        ended("passed", ("input_ids/image", "MATCH", None), ("sam.page/3", "DRIFT", 2e-6), ("sam.page", "DRIFT", 4e-6)),
        ended("failed", ("images_ori", "WRONG", "infinite"), ("text", "NOT-COMPARED", None), ("sampled", "WRONG", 9.0)),
        ended("skipped"),
    ],
}
ONE = Kept.of(RESULT, "it", "It | that", "it 0.9")


def test_a_run_makes_a_row_of_each_table() -> None:
    of_run, of_stages = (table.splitlines()[2] for table in tables([ONE]))
    assert of_run == r"| It \| that | `it` | it 0.9 | L2 | 2026-11-22 | 1 of 2 |"
    assert of_stages == f"| `it` | it 0.9 | = | . | x 1 of 1 | . | =, 4e-06 |{' . |' * 6}"
    with pytest.raises(DsocrError, match="put no case to its subject"):
        Kept.of({**RESULT, "run": None}, "it", "It", "it 0.9")


def test_versions_stand_in_their_order_and_a_later_run_of_one_replaces_it(tmp_path: Path) -> None:
    for version in ("it 0.10", "commit 8f", "it 0.9", "it 0.9rc1", "it 0.10"):
        assert keep(tmp_path, replace(ONE, version=version)).stat().st_size < 2048
    assert [one.version for one in read(tmp_path)] == ["commit 8f", "it 0.9rc1", "it 0.9", "it 0.10"]
    assert read(tmp_path)[2] == ONE


def test_the_command_keeps_a_result_and_puts_the_tables_in_the_place_of_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, page, run = tmp_path / "kept", tmp_path / "page.md", tmp_path / "dsocr.json"
    run.write_text(json.dumps(night(*GOOD)))
    keep(kept, ONE)
    runs, stages = (table.partition("\n")[0] for table in tables([]))
    page.write_text(f"# Page\n\n{runs}\n| --- |\n| old |\n\nBetween.\n\n{stages}\nBehind | it.\n")
    command = ["scoreboard", str(kept), f"--into={page}"]
    assert main([*command, f"--add={run}"]) == 2
    assert "--add needs to know what was run; give --name and --version" in capsys.readouterr().err
    assert main([*command, f"--add={run}", "--name=other", "--version=1"]) == 0
    first, second = tables(read(kept))
    assert capsys.readouterr().out == f"{first}\n{second}"
    assert page.read_text() == f"# Page\n\n{first}\nBetween.\n\n{second}Behind | it.\n"
    clip = {one.title: one.stages["CLIP"] for one in read(kept)}
    assert clip == {"It | that": Tally(), "other": Tally(compared=1, error=0.71)}
    page.write_text(runs)
    assert main(command) == 2
    assert "the page has no table with the head | implementation |" in capsys.readouterr().err
