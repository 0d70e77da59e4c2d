"""Where a run's time went: its parts and what is left, as a line of the summary and, on request, as a table."""

from __future__ import annotations

import pytest

from pytest_dsocr.report.payload import SpentPayload
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.times import PARTS, by_part, in_line, in_table
from tests.report.made import MATCH, payload, run_payload
from tests.report.test_result import result


def process(worker: str, elapsed_s: float, **seconds: float) -> SpentPayload:
    return {"worker": worker, "device": "cpu", "cases": 1, "elapsed_s": elapsed_s, "seconds": seconds}


TWO = [process("gw0", 8.0, subject=4.0, comparing=0.5), process("gw1", 10.0, subject=6.0, drawing=0.01)]


def test_every_second_of_the_processes_is_of_one_part() -> None:
    none = dict.fromkeys(PARTS, 0.0)
    assert by_part(TWO) == {**none, "subject": 10.0, "comparing": 0.5, "drawing": 0.01, "other": pytest.approx(7.49)}
    assert by_part([process("", 3.0, **{"tests of cache": 2.0})]) == none | {"tests of cache": 2.0, "other": 1.0}
    assert by_part([process("", 3.0, subject=4.0)])["other"] == 0.0, "never less than nothing, though clocks differ"


def test_it_is_a_line_and_a_table() -> None:
    assert in_line(TWO) == "10.0 s on 2 workers: subject 10.0, comparing 0.5, other 7.5"
    assert in_line([process("", 0.01)]) == "0.0 s on 1 worker: nothing of note"
    rows = [line.split()[:4] for line in in_table(TWO)]
    assert ["subject", "10.0", "s", "56%"] in rows
    assert len(rows) == len(PARTS) + 1


@pytest.mark.parametrize("verbose", [False, True])
def test_the_summary_has_the_line_and_on_request_the_table(verbose: bool) -> None:
    told = [payload(MATCH, run=run_payload(), spent=one) for one in TWO]
    lines = [line.text for line in Summary(result(*(("passed", one) for one in told)), verbose=verbose).lines]
    assert any(line.startswith("time ") and "subject 10.0" in line for line in lines)
    assert any(line.split()[:4] == ["subject", "10.0", "s", "56%"] for line in lines) is verbose
