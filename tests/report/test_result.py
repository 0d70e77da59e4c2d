"""Result and ending of a run, from the payloads of tests in any order."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from pytest_dsocr.compare.verdict import Comparison, Reason, not_compared
from pytest_dsocr.report.document import finished
from pytest_dsocr.report.file import OF_PYTEST, Ending, read_result, write_json
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.worker_report import WorkerReport
from pytest_dsocr.timing.statistics import Judgement
from tests.markdown import table
from tests.report.made import (
    DRIFT,
    FAULT,
    LOST,
    MATCH,
    MISSING,
    SLOWER,
    WRONG,
    Ended,
    case_payload,
    new_result,
    payload,
    perf,
    result,
    run_payload,
)

RIGHT, BAD = ("passed", payload(MATCH)), ("failed", payload(WRONG))


def test_cases_come_in_the_runs_order_each_once_whichever_worker_was_first() -> None:
    sent = [payload(MATCH, case=case_payload(name, place=k)) for k, name in enumerate("cab")]
    for order in permutations(range(3)):
        made = result(*(("passed", sent[k]) for k in order), ("passed", sent[0]))
        assert [case.id for case in made.cases] == ["c", "a", "b"]


def test_of_workers_that_disagree_about_a_case_the_graver_one_counts() -> None:
    reports = [case_payload("a"), case_payload("a", WRONG, verdict="WRONG", passes=False)]
    for both in (reports, reports[::-1]):
        made = result(*(("passed", payload(MATCH, case=one)) for one in both))
        assert [case.verdict for case in made.cases] == ["WRONG"]


def test_pytest_is_to_fail_where_what_was_promised_is_not_compared() -> None:
    runs: list[list[Ended]] = [[RIGHT], [("passed", payload())], [("passed", payload(promised=False))], []]
    made = [result(*run) for run in runs]
    made[-1].plan.add(["not run"])
    assert [run.fails for run in made] == [False, True, False, False], "without a test of ours it is pytest's affair"


def test_blocks_that_are_not_comparable_are_reported_once_and_with_the_verdict() -> None:
    padded, passing = "not comparable by block: calls are padded", ("passed", payload(MATCH, case=case_payload("c")))
    of_blocks = [
        not_compared(name, Reason.NOT_BY_BLOCK, padded) for name in ("sam.page/0", "sam.page/1", "clip.page/0")
    ]
    made = result(*(("passed", payload(MATCH, case=case_payload(name, MATCH, *of_blocks))) for name in "ab"), passing)
    assert made.verdict == "passes, blocks of sam, clip not compared"
    assert [line.text for line in Summary(made).lines if padded in line.text] == [
        f"noticed         sam, clip {padded}; what each stage gives is compared"
    ]
    assert not result(passing).verdict.endswith("not compared")


def test_the_largest_drift_is_of_a_suite_that_is_named() -> None:
    """A suite may drift more than any stage of a case, and its error is not the cases' largest."""
    made = new_result()
    made.add("suites/parity/test_case.py::test", "passed", payload(DRIFT, case=case_payload("a", DRIFT)))
    made.add("../suites/cache/test_ring.py::test", "passed", payload(replace(DRIFT, error=5e-3)))
    made.add("test_own.py::test", "passed", payload())
    made.tests["test_own.py::test"].place = ("tests/test_own.py", 1)
    made.add("test_ids.py::test", "passed", payload(MATCH))
    made.tests["test_ids.py::test"].place = (".venv/pytest_dsocr/suites/contract/test_ids.py", 1)
    assert (made.worst_drift, made.suites) == ((5e-3, "cache"), ["cache", "contract", "parity"])
    [counted] = [line.text for line in Summary(made).lines if "comparisons by" in line.text]
    assert counted == "3 comparisons by cache, contract, parity in 1 case: 2 DRIFT within 5.0e-03 (cache), 1 MATCH"


# One test.


def report(when: Any, outcome: Any, carried: WorkerReport | None) -> pytest.TestReport:
    sent = pytest.TestReport("test.py::test", ("test.py", 1, "test"), {}, outcome, None, when)
    if carried is not None:
        vars(sent)["dsocr"] = to_builtins(carried)
    return sent


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        ((("setup", "passed"), ("call", "passed"), ("teardown", "passed")), "passed"),
        ((("setup", "passed"), ("call", "failed"), ("teardown", "passed")), "failed"),
        ((("setup", "passed"), ("call", "postponed"), ("teardown", "passed")), "postponed"),
        ((("setup", "skipped"), ("teardown", "passed")), "skipped"),
        ((("setup", "failed"), ("teardown", "passed")), "error"),
        ((("setup", "passed"), ("call", "passed"), ("teardown", "failed")), "error"),
    ],
)
def test_of_a_tests_phases_the_gravest_counts(phases: tuple[tuple[Any, Any], ...], outcome: str) -> None:
    made = new_result()
    for when, came in phases:
        made.add_report(report(when, came, payload(MATCH)))
    [test] = made.tests.values()
    assert (test.outcome, len(test.comparisons)) == (outcome, 1)


@pytest.mark.parametrize(
    ("outcomes", "ended", "verdict"),
    [
        (("rerun", "rerun", "passed"), "flaky", "passes; 1 test FLAKY"),
        (("rerun", "failed"), "failed", "1 of 1 test failed"),
        (("rerun",), "rerun", "1 test ended as 'rerun'"),
        (("lost",), "lost", "1 test ended as 'lost'"),
    ],
)
def test_a_test_that_is_run_again_is_distinguished_from_one_that_passed(
    outcomes: tuple[str, ...], ended: str, verdict: str
) -> None:
    made = new_result()
    made.plan.exit_status = 0
    for outcome in outcomes:
        made.add("a", outcome, payload(WRONG if outcome == "rerun" else MATCH))
    [test] = made.document.tests
    assert (test.outcome, made.verdict, len(test.comparisons)) == (ended, verdict, 1)


@pytest.mark.parametrize(
    ("came", "compared", "outcome"),
    [("skipped", WRONG, "xfailed"), ("passed", MATCH, "xpassed"), ("passed", WRONG, "failed")],
)
def test_known_failures_are_distinguished_from_skips(came: Any, compared: Comparison, outcome: str) -> None:
    made, sent = new_result(), report("call", came, payload(compared))
    sent.wasxfail = "slow rotary"
    made.add_report(sent)
    [test] = made.tests.values()
    assert (test.outcome, test.reason) == (outcome, "slow rotary")


# How it ended.


@pytest.mark.parametrize(
    ("tests", "ending"),
    [
        ([RIGHT], Ending.PASSES),
        ([RIGHT, BAD], Ending.WRONG),
        ([RIGHT, ("error", payload(fault=FAULT))], Ending.WRONG),
        ([RIGHT, ("failed", payload(MATCH))], Ending.WRONG),
        ([RIGHT, ("failed", payload(left_out="not offered"))], Ending.WRONG),
        ([RIGHT, ("odd", payload(MATCH))], Ending.WRONG),
        ([RIGHT, LOST], Ending.INFRASTRUCTURE),
        ([RIGHT, MISSING], Ending.INFRASTRUCTURE),
        ([("skipped", payload(left_out="gpu"))], Ending.INFRASTRUCTURE),
        ([("passed", payload())], Ending.WRONG),
        ([RIGHT, SLOWER], Ending.SLOWER),
        ([RIGHT, ("error", payload(WRONG, fault={**FAULT, "infrastructure": True}))], Ending.WRONG),
        ([RIGHT, LOST, BAD], Ending.WRONG),
        ([RIGHT, SLOWER, BAD], Ending.WRONG),
        ([RIGHT, SLOWER, LOST], Ending.INFRASTRUCTURE),
    ],
)
def test_the_gravest_of_its_tests_counts(tests: Sequence[Ended], ending: Ending) -> None:
    made = result(*tests)
    made.plan.exit_status = int(bool(made.failing))
    assert made.ended_as == made.document.ended_as == ending


@pytest.mark.parametrize(("status", "ending"), [*OF_PYTEST.items(), (77, Ending.WRONG)])
def test_what_pytest_says_itself_counts_before_its_tests(status: int, ending: Ending) -> None:
    made = result(RIGHT)
    made.plan.exit_status = status
    assert made.ended_as is ending


def test_what_the_run_itself_lacks_counts_as_well() -> None:
    """A CI may let what is slower pass, and not what was not compared."""
    slower, lost, full = result(RIGHT, SLOWER), result(RIGHT, LOST), result(RIGHT)
    slower.plan.exit_status = lost.plan.exit_status = 1
    slower.plan.add(["not run"])
    lost.plan.others_failed = True
    full.plan.problems.append("the result was not written")
    assert [one.ended_as for one in (slower, lost, full)] == [Ending.WRONG, Ending.WRONG, Ending.INFRASTRUCTURE]


# The file.


def test_the_json_file_is_the_result(tmp_path: Path) -> None:
    made = result(
        ("passed", payload(MATCH, DRIFT, case=case_payload("a", MATCH, DRIFT), run=run_payload())), BAD, SLOWER, LOST
    )
    read = json.loads(write_json(tmp_path, made.document).read_text(encoding="utf-8"))
    assert read == read_result(tmp_path)
    assert finished(read, tmp_path) == made.document
    assert (read["format"], read["status"], read["passes"], read["comparisons"]) == (2, "finished", False, 4)
    assert read["counts"] == {"WRONG": 2, "TIE-FLIP": 0, "DRIFT": 1, "MATCH": 1, "NOT-COMPARED": 0}
    assert read["run"]["provenance"]["vendor_sha256"]
    assert read["environment"]["versions"]["torch"]
    assert [test["ended_as"] for test in read["tests"]] == ["passes", "wrong", "slower", "infrastructure"]
    assert [one["what"] for one in read["tests"][0]["comparisons"]] == ["input_ids", "sam.page"]
    assert [left.name for left in tmp_path.iterdir()] == ["dsocr.json"]
    assert {name for row in table("docs/running.md", "field") for name in re.findall("`(.*?)`", row[0])} <= read.keys()


def test_times_without_a_baseline_are_no_pass_of_times() -> None:
    made = result(RIGHT)
    verdicts = []
    for found in (perf(), {**perf(), "accepted": "baseline.json"}, perf(Judgement.not_compared("decode", "no rounds"))):
        made.perf = found
        verdicts.append(made.verdict)
    assert verdicts == ["no times judged, all else passes", "passes", "passes"]


def test_what_is_offered_of_a_part_of_the_run_is_in_the_verdict() -> None:
    """Steps of a case, and what another case of the same subject offers."""
    absent, never = (not_compared(what, Reason.NOT_OFFERED) for what in ("sam.page", "clip.page"))
    cases = [
        case_payload("a", MATCH, DRIFT, tokens={"reference": 76, "subject": 1}),
        case_payload("b", MATCH, absent, tokens={"reference": 4, "subject": 4}),
        case_payload("c", MATCH, never, tokens={"reference": 9, "subject": None}),
    ]
    made = result(*(("passed", payload(MATCH, case=case)) for case in cases))
    assert [*made.offered_in_part] == ["75 of 80 steps", "sam.page of 1 of 3 cases"]
    assert made.verdict == "passes, 75 of 80 steps not offered, sam.page of 1 of 3 cases not offered"
    assert not made.why_not
