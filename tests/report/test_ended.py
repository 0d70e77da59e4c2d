"""How a run ended: a wrong model, a machine out of order, a slower one, or what pytest itself says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.report.exit_status import EXIT_STATUS, Ending
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
        ([RIGHT], Ending.PASSES),
        ([RIGHT, BAD], Ending.WRONG),
        ([RIGHT, RAISED], Ending.WRONG),
        ([RIGHT, OWN_ASSERT], Ending.WRONG),
        ([RIGHT, NOT_OFFERED], Ending.WRONG),
        ([RIGHT, ("odd", payload(MATCH))], Ending.WRONG),
        ([RIGHT, LOST], Ending.INFRASTRUCTURE),
        ([RIGHT, MISSING], Ending.INFRASTRUCTURE),
        ([("skipped", payload(left_out="gpu"))], Ending.INFRASTRUCTURE),
        ([("passed", payload())], Ending.WRONG),
        ([RIGHT, SLOWER], Ending.SLOWER),
        ([RIGHT, LOST_HALFWAY], Ending.WRONG),
        ([RIGHT, LOST, BAD], Ending.WRONG),
        ([RIGHT, SLOWER, BAD], Ending.WRONG),
        ([RIGHT, SLOWER, LOST], Ending.INFRASTRUCTURE),
    ],
)
def test_the_gravest_of_its_tests_counts(tests: Sequence[tuple[str, Payload]], ended: Ending) -> None:
    made = result(*tests)
    made.plan.exit_status = int(bool(made.failing))
    assert made.ended_as == made.to_json()["ended_as"] == ended


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (2, Ending.INTERRUPTED),
        (3, Ending.INTERNAL_ERROR),
        (4, Ending.REFUSED),
        (5, Ending.NO_TESTS),
        (77, Ending.WRONG),
    ],
)
def test_what_pytest_says_itself_counts_before_its_tests(status: int, ended: Ending) -> None:
    made = result(RIGHT)
    made.plan.exit_status = status
    assert made.ended_as is ended


def test_a_run_that_did_not_end_is_not_called_slower() -> None:
    """A CI may let what is slower pass, and not what was not compared."""
    made = result(RIGHT, SLOWER)
    made.plan.exit_status = 1
    made.plan.add(["not run"])
    assert made.ended_as is Ending.WRONG


def test_a_failure_of_somebody_elses_test_is_not_hidden_by_the_machine() -> None:
    made = result(RIGHT, LOST)
    made.plan.exit_status, made.plan.others_failed = 1, True
    assert made.ended_as is Ending.WRONG


def test_a_result_that_cannot_be_written_is_the_machines() -> None:
    made = result(RIGHT)
    made.plan.problems.append("the result was not written")
    assert made.ended_as is Ending.INFRASTRUCTURE


def test_every_test_says_how_it_ended() -> None:
    told = result(RIGHT, BAD, SLOWER, LOST).to_json()["tests"]
    assert [test["ended_as"] for test in told] == ["passes", "wrong", "slower", "infrastructure"]


def test_no_status_is_anothers() -> None:
    assert {*EXIT_STATUS} == {*Ending}
    assert len({*EXIT_STATUS.values()}) == len(Ending)
    assert all(status < 128 for status in EXIT_STATUS.values())
