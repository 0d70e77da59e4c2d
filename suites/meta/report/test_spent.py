"""Where a run's time went: its parts and what is left, in the summary, the JSON and merged results."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_dsocr.report.spent import PARTS, Spent
from pytest_dsocr.report.terminal import Summary
from suites.meta.report.made import MATCH, payload, run_payload
from suites.meta.report.test_result import result

SPENT = Spent({"loading": 2.0, "subject": 10.0, "comparing": 0.5}, wall_s=10.0, workers=2)


def test_every_second_of_the_workers_is_of_one_part() -> None:
    assert SPENT.whole == {
        **{"loading": 2.0, "reference": 0.0, "subject": 10.0, "comparing": 0.5, "drawing": 0.0},
        "other": 7.5,
    }
    assert replace(SPENT, wall_s=6.0).whole["other"] == 0.0  # never less than nothing, though clocks differ


def test_it_is_a_line_and_a_table() -> None:
    assert SPENT.line == "10.0 s on 2 workers: loading 2.0, subject 10.0, comparing 0.5, other 7.5"
    assert [line.split()[:4] for line in SPENT.table][:3] == [
        ["loading", "2.0", "s", "10%"],
        ["reference", "0.0", "s", "0%"],
        ["subject", "10.0", "s", "50%"],
    ]
    assert len(list(SPENT.table)) == len(PARTS) + 1


def test_nothing_is_told_of_a_run_that_was_not_timed() -> None:
    assert (Spent({}).line, Spent({}).to_json()) == ("", None)


def test_json_is_read_back_and_runs_side_by_side_are_added() -> None:
    again = Spent.from_json(json.loads(json.dumps(SPENT.to_json())))
    assert again.whole == SPENT.whole
    assert Spent.from_json(None).to_json() is None
    both = Spent.from_json(None).beside(again).beside(replace(SPENT, wall_s=30.0, workers=1)).beside(Spent({}))
    assert (both.wall_s, both.workers) == (30.0, 3)
    assert both.whole["subject"] == 20.0


@pytest.mark.parametrize("verbose", [False, True])
def test_the_summary_has_the_line_and_on_request_the_table(verbose: bool) -> None:
    told = [payload(MATCH, run=run_payload(), seconds={"subject": seconds}) for seconds in (4.0, 6.0)]
    made = result(*(("passed", one) for one in told))
    made.spent = replace(made.spent, wall_s=20.0)
    lines = [line.text for line in Summary(made, verbose=verbose).lines]
    assert any(line.startswith("time ") and "subject 10.0" in line for line in lines)
    assert any(line.split()[:4] == ["subject", "10.0", "s", "50%"] for line in lines) is verbose
    assert made.to_json()["seconds"]["parts"]["other"] == 10.0
