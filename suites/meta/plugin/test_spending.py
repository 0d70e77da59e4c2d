"""Where a run's time went is told by the run itself, whether its tests ran in one process or in two."""

from __future__ import annotations

import json

import pytest

from suites.meta.plugin.conftest import Repository


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_tells_where_its_time_went(workers: int, repository: Repository) -> None:
    arguments = ["--dsocr-out=out", *(["-n", str(workers)] if workers > 1 else [])]
    run = repository.run("def test_text(dsocr_report, dsocr_check): dsocr_check(dsocr_report, 'text')", *arguments)
    run.stdout.fnmatch_lines([f"time *s on {workers} worker*: *other *"])
    told = json.loads((repository.pytester.path / "out" / "dsocr.json").read_text())["seconds"]
    assert told["workers"] == workers
    taken = {name for name, seconds in told["parts"].items() if seconds > 0}
    assert taken >= {"loading", "comparing", "drawing", "other"}
    assert sum(told["parts"].values()) == pytest.approx(told["wall"] * workers)
