"""How a run ended: a wrong model, a machine out of order, a slower one, or what pytest itself says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.report.ended import EXIT_STATUS, Ended
from tests.report.made import MATCH, WRONG, Payload, payload
from tests.report.test_result import FAULT, result

SLOW = Comparison("perf/decode", Verdict.WRONG, "1.31 times the baseline")
RIGHT = ("passed", payload(MATCH))
BAD = ("failed", payload(WRONG))
SLOWER = ("failed", payload(SLOW))
RAISED = ("error", payload(fault=FAULT))
LOST = ("error", payload(fault={**FAULT, "infrastructure": True}))
LOST_HALFWAY = ("error", payload(WRONG, fault={**FAULT, "infrastructure": True}))
MISSING = ("failed", payload(left_out="recording"))
NOT_OFFERED = ("failed", payload(left_out="not offered"))
OWN_ASSERT = ("failed", payload(MATCH))


@pytest.mark.parametrize(
    ("tests", "ended"),
    [
        ([RIGHT], Ended.PASSES),
        ([RIGHT, BAD], Ended.WRONG),
        ([RIGHT, RAISED], Ended.WRONG),
        ([RIGHT, OWN_ASSERT], Ended.WRONG),
        ([RIGHT, NOT_OFFERED], Ended.WRONG),
        ([RIGHT, ("odd", payload(MATCH))], Ended.WRONG),
        ([RIGHT, LOST], Ended.INFRASTRUCTURE),
        ([RIGHT, MISSING], Ended.INFRASTRUCTURE),
        ([("skipped", payload(left_out="gpu"))], Ended.INFRASTRUCTURE),
        ([("passed", payload())], Ended.WRONG),
        ([RIGHT, SLOWER], Ended.SLOWER),
        ([RIGHT, LOST_HALFWAY], Ended.WRONG),
        ([RIGHT, LOST, BAD], Ended.WRONG),
        ([RIGHT, SLOWER, BAD], Ended.WRONG),
        ([RIGHT, SLOWER, LOST], Ended.INFRASTRUCTURE),
    ],
)
def test_the_gravest_of_its_tests_counts(tests: Sequence[tuple[str, Payload]], ended: Ended) -> None:
    made = result(*tests)
    made.plan.exit_status = int(bool(made.failing))
    assert made.ended_as == made.to_json()["ended_as"] == ended


@pytest.mark.parametrize(
    ("status", "ended"),
    [(2, Ended.INTERRUPTED), (3, Ended.INTERNAL_ERROR), (4, Ended.REFUSED), (5, Ended.NO_TESTS), (77, Ended.WRONG)],
)
def test_what_pytest_says_itself_counts_before_its_tests(status: int, ended: Ended) -> None:
    made = result(RIGHT)
    made.plan.exit_status = status
    assert made.ended_as is ended


def test_a_run_that_did_not_end_is_not_called_slower() -> None:
    """A CI may let what is slower pass, and not what was not compared."""
    made = result(RIGHT, SLOWER)
    made.plan.exit_status = 1
    made.plan.add(["not run"])
    assert made.ended_as is Ended.WRONG


def test_a_failure_of_somebody_elses_test_is_not_hidden_by_the_machine() -> None:
    made = result(RIGHT, LOST)
    made.plan.exit_status, made.plan.others_failed = 1, True
    assert made.ended_as is Ended.WRONG


def test_a_result_that_cannot_be_written_is_the_machines() -> None:
    made = result(RIGHT)
    made.plan.problems.append("the result was not written")
    assert made.ended_as is Ended.INFRASTRUCTURE


def test_every_test_says_how_it_ended() -> None:
    told = result(RIGHT, BAD, SLOWER, LOST).to_json()["tests"]
    assert [test["ended_as"] for test in told] == ["passes", "wrong", "slower", "infrastructure"]


def test_no_status_is_anothers() -> None:
    assert {*EXIT_STATUS} == {*Ended}
    assert len({*EXIT_STATUS.values()}) == len(Ended)
    assert all(status < 128 for status in EXIT_STATUS.values())
