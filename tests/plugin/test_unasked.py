"""Suites that measure, which only runs that name them include."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import suites
from pytest_dsocr.cli.main import main
from pytest_dsocr.plugin.options import SPREAD
from pytest_dsocr.plugin.selection import is_unasked
from pytest_dsocr.plugin.stash import NOTES
from pytest_dsocr.report.words import ON_REQUEST

[ALL] = map(Path, suites.__path__)


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        ((ALL,), {"perf", "cost"}),
        ((ALL / "parity", ALL / "cache"), set()),
        (("--pyargs", "pytest_dsocr.suites"), {"perf", "cost"}),
        ((ALL, "--dsocr-allow-missing=gpu", "-m", "not dsocr_gpu"), {"perf", "cost"}),
        ((ALL, "--dsocr-baseline-update"), {"cost"}),
        ((ALL, "--dsocr-allow-missing=gpu", "--dsocr-allow-missing=baseline"), {"cost"}),
        ((ALL, ALL / "perf"), {"cost"}),
        ((ALL / "perf" / "test_counts.py::test_counts", ALL), {"cost"}),
        ((ALL, "--pyargs", "pytest_dsocr.suites.cost"), {"perf"}),
        ((ALL, "-m", "dsocr_perf"), set()),
        ((ALL, "-k", "not page"), {"perf", "cost"}),
        ((ALL, "-k", "test_is_no_slower[page]"), set()),
        (("--pyargs", "pytest_dsocr.suites.perf", "pytest_dsocr.suites.cost.test_steps"), set()),
    ],
)
def test_they_are_left_out_only_where_all_suites_are_named(
    arguments: tuple[Path | str, ...], left_out: set[str], pytester: pytest.Pytester
) -> None:
    config = pytester.parseconfig(*map(str, arguments))
    found = {folder.name for folder in ALL.iterdir() if is_unasked(folder, config)}
    assert found == left_out
    notes = config.stash.get(NOTES, [])
    assert sorted(note.split()[2] for note in notes) == sorted(left_out)
    assert {*ON_REQUEST} <= {folder.name for folder in ALL.iterdir()}


@pytest.mark.parametrize(("update", "are_taken"), [("", False), ("off", False), ("1", True)])
def test_compare_takes_times_where_the_environment_asks_for_a_baseline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, update: str, are_taken: bool
) -> None:
    """Start ``dsocr compare`` without workers and with the usual waiting of threads if it is to time anything."""
    commands: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def started(command: Sequence[str], _: str, defaults: Mapping[str, str]) -> tuple[int, str]:
        commands.append((command, defaults))
        return 3, ""

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSOCR_BASELINE_UPDATE", update)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr("pytest_dsocr.cli.compare.status_of", started)
    main(["compare"])
    [(command, defaults)] = commands
    assert any(word.endswith("perf") for word in command) is are_taken
    assert are_taken is (SPREAD not in command)
    assert are_taken is ("OMP_WAIT_POLICY" not in defaults), "how threads wait is part of what is timed"
