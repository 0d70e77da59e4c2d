"""One run's result out of many tests' payloads, whatever the order in which workers send them."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.verdict import Comparison, not_compared
from pytest_dsocr.observation.level import Level
from pytest_dsocr.report.collection import Plan
from pytest_dsocr.report.file import RunIdentity, read_result, write_json
from pytest_dsocr.report.result import RunResult, level_of_comparison
from pytest_dsocr.report.words import BY_SESSION
from tests.report.made import DRIFT, MATCH, WRONG, Payload, case_payload, payload, run_payload

FAULT = {"case": "b", "stage": "prefill", "why": "the subject's prefill raised; see there", "infrastructure": False}


def begun() -> RunResult:
    """The result of a run that has told nothing yet."""
    return RunResult(RunIdentity("1f", "2026-11-22T04:00:00+00:00", "abc-dirty", "pytest suites"), Plan())


def result(*tests: tuple[str, Payload], reason: str = "") -> RunResult:
    """The result of tests with an outcome and a payload each."""
    made = begun()
    made.plan.exit_status = 0
    for k, (outcome, told) in enumerate(tests):
        made.add(f"test_case.py::test[{k}]", outcome, told, reason)
    return made


def test_verdicts_are_counted_over_tests_and_what_was_not_compared_is_no_comparison() -> None:
    made = result(
        ("passed", payload(MATCH, DRIFT)),
        ("failed", payload(WRONG)),
        ("skipped", payload(not_compared("a", Reason.NOT_GIVEN))),
    )
    assert dict(made.counts) == {"MATCH": 1, "DRIFT": 1, "WRONG": 1, "NOT-COMPARED": 1}
    assert made.made == 3
    assert made.worst_drift == 3.2e-7


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_cases_come_in_the_runs_order_each_once_whichever_worker_was_first(order: tuple[int, ...]) -> None:
    sent = [payload(MATCH, case=case_payload(name, place=k)) for k, name in enumerate(("c", "a", "b"))]
    made = result(*(("passed", sent[k]) for k in order), ("passed", sent[0]))
    assert [case["id"] for case in made.cases] == ["c", "a", "b"]


@pytest.mark.parametrize("first", [0, 1])
def test_of_workers_that_disagree_about_a_case_the_graver_one_counts(first: int) -> None:
    reports = [case_payload("a"), case_payload("a", WRONG, verdict="WRONG", passes=False)]
    made = result(*(("passed", payload(MATCH, case=reports[k])) for k in (first, 1 - first)))
    assert [case["verdict"] for case in made.cases] == ["WRONG"]


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ([], ["no comparison was made"]),
        ([("passed", payload(MATCH))], []),
        ([("passed", payload(MATCH)), ("xfailed", payload(WRONG))], []),
        ([("passed", payload(MATCH)), ("skipped", payload())], []),
        ([("passed", payload())], ["no comparison was made"]),
        ([("passed", payload(not_compared("sam.page", Reason.NOT_OFFERED)))], ["no comparison was made"]),
        ([("passed", payload(MATCH)), ("failed", payload(WRONG))], ["1 of 2 tests failed"]),
        ([("error", payload())], ["no comparison was made", "1 of 1 test failed"]),
    ],
)
def test_a_run_passes_only_where_something_was_compared_and_no_test_failed(
    tests: list[tuple[str, Payload]], why: list[str]
) -> None:
    made = result(*tests)
    assert made.why_not == why
    assert made.verdict == ("; ".join(why) or "passes")
    assert made.concerned is bool(tests)


def test_what_is_not_offered_is_told_by_level() -> None:
    names = ["prefill/0", "images_ori", "sam.page", "result.mmd", "sam.page"]
    made = result(("passed", payload(*(not_compared(name, Reason.NOT_OFFERED) for name in names))))
    assert made.not_offered == {"L0": ["result.mmd"], "L1": ["images_ori"], "L2": ["sam.page"], "L3": ["prefill/0"]}


@pytest.mark.parametrize(
    ("what", "level"),
    [
        ("read", 0),
        ("boxes", 0),
        ("input_ids", 1),
        ("dtypes", 1),
        ("clip.crops", 2),
        ("logits", 2),
        ("policy/eos_id", 2),
        ("clip.page/1", 3),
    ],
)
def test_each_comparison_belongs_to_a_level(what: str, level: int) -> None:
    assert level_of_comparison(what) is Level(level)


def test_what_was_missing_is_told_once_with_how_many_tests_wanted_it() -> None:
    lost = payload(left_out="recording", reason="does not hold a")
    made = result(("skipped", lost), ("skipped", lost), ("error", payload(left_out="gpu", reason="needs one")))
    assert made.missing == [
        {"what": "recording", "why": "does not hold a", "tests": 2, "allowed": True},
        {"what": "gpu", "why": "needs one", "tests": 1, "allowed": False},
    ]
    assert dict(made.skips) == {}


def test_skips_are_told_by_reason_but_for_those_that_tell_what_is_not_offered() -> None:
    level = payload(left_out="not offered", reason="needs L2")
    of_a_stage = payload(not_compared("sam.page", Reason.NOT_OFFERED), left_out="not offered")
    made = result(("skipped", level), ("skipped", level), ("skipped", of_a_stage), reason="needs L2")
    assert dict(made.skips) == {"needs L2": 2}


def test_faults_are_told_once_and_known_failures_by_reason() -> None:
    made = result(("error", payload(fault=FAULT)), ("error", payload(fault=FAULT)), ("xfailed", payload()), reason="y")
    assert made.faults == [FAULT]
    assert dict(made.known_failures) == {"y": 1}


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        ((("setup", "passed"), ("call", "passed"), ("teardown", "passed")), "passed"),
        ((("setup", "passed"), ("call", "failed"), ("teardown", "passed")), "failed"),
        ((("setup", "skipped"), ("teardown", "passed")), "skipped"),
        ((("setup", "failed"), ("teardown", "passed")), "error"),
        ((("setup", "passed"), ("call", "passed"), ("teardown", "failed")), "error"),
    ],
)
def test_of_a_tests_phases_the_gravest_counts(phases: tuple[tuple[Any, Any], ...], outcome: str) -> None:
    made = begun()
    for when, came in phases:
        made.add_report(_report(when, came, payload(MATCH)))
    [test] = made.tests.values()
    assert (test.outcome, len(test.comparisons)) == (outcome, 1)


@pytest.mark.parametrize("order", [("failed", "passed"), ("passed", "failed")])
def test_of_two_reports_of_one_test_the_gravest_counts_and_all_that_they_told(order: tuple[str, str]) -> None:
    made = begun()
    made.add("a", order[0], {"comparisons": payload(MATCH)["comparisons"]}, order[0])
    made.add("a", order[1], {"reason": "then"}, order[1])
    [test] = made.tests.values()
    assert (test.outcome, test.reason) == ("failed", "failed")
    assert (made.made, test.payload["reason"]) == (1, "then")


@pytest.mark.parametrize(
    ("outcomes", "ended", "verdict"),
    [
        (("rerun", "passed"), "flaky", "passes; 1 test FLAKY"),
        (("rerun", "rerun", "passed"), "flaky", "passes; 1 test FLAKY"),
        (("rerun", "failed"), "failed", "1 of 1 test failed"),
        (("rerun",), "rerun", "1 test ended as 'rerun'"),
        (("lost",), "lost", "1 test ended as 'lost'"),
    ],
)
def test_a_test_that_is_run_again_is_told_from_one_that_passed(
    outcomes: tuple[str, ...], ended: str, verdict: str
) -> None:
    made = begun()
    made.plan.exit_status = 0
    for outcome in outcomes:
        made.add("a", outcome, payload(WRONG if outcome == "rerun" else MATCH))
    [test] = made.to_json()["tests"]
    assert (test["outcome"], made.verdict) == (ended, verdict)
    assert len(test["comparisons"]) == 1


@pytest.mark.parametrize(
    ("came", "compared", "outcome"),
    [("skipped", WRONG, "xfailed"), ("passed", MATCH, "xpassed"), ("passed", WRONG, "failed")],
)
def test_known_failures_are_told_from_skips(came: Any, compared: Comparison, outcome: str) -> None:
    made, sent = begun(), _report("call", came, payload(compared))
    sent.wasxfail = "slow rotary"
    made.add_report(sent)
    [test] = made.tests.values()
    assert (test.outcome, test.reason) == (outcome, "slow rotary")


def test_reports_that_carry_nothing_of_ours_are_left_alone() -> None:
    made = begun()
    made.add_report(_report("call", "failed", None))
    assert not made.concerned


def test_why_a_test_was_skipped_is_read_off_its_report() -> None:
    made, sent = begun(), _report("setup", "skipped", payload())
    sent.longrepr = ("test.py", 1, "Skipped: needs L2")
    made.add_report(sent)
    assert dict(made.skips) == {"needs L2": 1}


def test_the_json_file_is_the_result(tmp_path: Path) -> None:
    made = result(("passed", payload(MATCH, DRIFT, case=case_payload("a", MATCH, DRIFT), run=run_payload())))
    path = write_json(tmp_path, made.to_json())
    read = json.loads(path.read_text(encoding="utf-8"))
    assert {**read, "ended": ""} == {**json.loads(json.dumps(made.to_json(), allow_nan=False)), "ended": ""}
    assert read == read_result(tmp_path)
    assert [read[name] for name in ("format", "status", "verdict", "passes", "comparisons")] == [
        *(2, "finished", "passes", True, 2),
    ]
    assert [read[name] for name in ("id", "started", "commit", "command")] == [
        *("1f", "2026-11-22T04:00:00+00:00", "abc-dirty", "pytest suites"),
    ]
    assert read["counts"] == {"WRONG": 0, "TIE-FLIP": 0, "DRIFT": 1, "MATCH": 1, "NOT-COMPARED": 0}
    assert read["run"]["provenance"]["vendor_sha256"]
    assert read["environment"]["versions"]["torch"]
    assert read["cases"][0]["comparisons"][1]["what"] == "sam.page"
    [test] = read["tests"]
    assert (test["nodeid"], test["outcome"], test["case"]) == ("test_case.py::test[0]", "passed", "a")
    assert [one["verdict"] for one in test["comparisons"]] == ["MATCH", "DRIFT"]
    assert [left.name for left in tmp_path.iterdir()] == ["dsocr.json"]


def test_a_verdict_says_that_it_rests_on_the_session() -> None:
    case = case_payload("a", by_session=True)
    assert result(("passed", payload(MATCH, case=case))).verdict == f"passes, {BY_SESSION}"
    assert result(("failed", payload(WRONG, case=case))).verdict == f"1 of 1 test failed, {BY_SESSION}"
    assert result(("passed", payload(MATCH))).verdict == "passes"


def test_a_number_that_is_none_is_never_written(tmp_path: Path) -> None:
    made = result(("passed", payload(MATCH, case=case_payload("a", worst_error=float("nan")))))
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path, made.to_json())
    assert list(tmp_path.iterdir()) == []


def _report(when: Any, outcome: Any, carried: Payload | None) -> pytest.TestReport:
    sent = pytest.TestReport("test.py::test", ("test.py", 1, "test"), {}, outcome, None, when)
    if carried is not None:
        vars(sent)["dsocr"] = carried
    return sent
