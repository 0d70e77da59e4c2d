"""Suites that measure are left out of all suites, and never of a run that asks for them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import suites
from pytest_dsocr.cli.main import main
from pytest_dsocr.plugin.selection import MEASURING
from pytest_dsocr.plugin.workers import SPREAD
from pytest_dsocr.report.file import read_result

[SUITES] = map(Path, suites.__path__)
TEST = "import pytest\npytestmark = pytest.mark.dsocr_{}\ndef test_it(dsocr_config): pass\n"


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        ((), {"perf", "cost"}),
        (("--dsocr-may-miss=gpu", "-m", "not dsocr_gpu"), {"perf", "cost"}),
        (("-k", "not page"), {"perf", "cost"}),
        (("--dsocr-baseline-update",), {"cost"}),
        (("--dsocr-may-miss=gpu", "--dsocr-may-miss=baseline"), {"cost"}),
        (("all/perf",), {"cost"}),
        (("all/perf/test_perf.py::test_it",), {"cost"}),
        (("-m", "dsocr_perf"), {"cache"}),
        (("-k", "test_it"), set()),
    ],
)
def test_they_are_left_out_only_where_all_suites_are_named(
    arguments: tuple[str, ...], left_out: set[str], pytester: pytest.Pytester
) -> None:
    names = {"cache", *MEASURING}
    for name in names:
        folder = pytester.path / "all" / name
        folder.mkdir(parents=True)
        folder.joinpath(f"test_{name}.py").write_text(TEST.format("perf" if name in MEASURING else "slow"))
    shutil.copy(SUITES / "conftest.py", "all")
    result = pytester.runpytest_inprocess("all", *arguments, "-v", "--dsocr-out=out")
    assert names - {line.split("/")[1] for line in result.outlines if "PASSED" in line} == left_out
    notes = read_result(Path("out"))["notes"]
    assert sorted(note.split()[2] for note in notes) == sorted(left_out & {*MEASURING})
    assert {*MEASURING} <= {folder.name for folder in SUITES.iterdir()}


@pytest.mark.parametrize(("update", "are_taken"), [("", False), ("off", False), ("1", True)])
def test_compare_takes_times_where_the_environment_asks_for_a_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, update: str, are_taken: bool
) -> None:
    """Without other workers beside it."""
    commands: list[Sequence[str]] = []

    def started(command: Sequence[str], *_: object) -> tuple[int, str]:
        commands.append(command)
        return 3, ""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOCR_BASELINE_UPDATE", update)
    monkeypatch.setattr("pytest_dsocr.cli.compare._status_of", started)
    main(["compare"])
    [command] = commands
    assert any(word.endswith("perf") for word in command) is are_taken
    assert are_taken is (SPREAD not in command)
