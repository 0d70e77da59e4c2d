"""The summary, of runs that pass, fail, compare nothing, or lack something; every line of it is a snapshot."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.signs import Reason, Sign
from pytest_dsocr.compare.verdict import not_compared
from pytest_dsocr.foundation.words import COLUMNS
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.terminal import BAD, GOOD, MOST, NOTED, Summary
from tests.report.made import DRIFT, MATCH, WRONG, Payload, case_payload, payload, run_payload
from tests.report.test_result import FAULT, begun, result

RUN = run_payload()
OWN, LIVE = run_payload(subject="mine:Model", level="L0"), run_payload(subject="mine:Model", reference="live")
LOST = payload(left_out="recording", reason="golden/vendor does not hold a; add it with: dsocr vendor record", run=RUN)
RIGHT = [
    payload(MATCH, DRIFT, run=RUN, case=case_payload(f"d{k}", worst_error=k * 1e-7, counts={"MATCH": 1, "DRIFT": 1}))
    for k in range(5)
]
BROKEN = payload(
    WRONG,
    run=RUN,
    case=case_payload(
        "receipt_086-gundam-markdown",
        verdict="WRONG",
        passes=False,
        first_wrong="clip.page",
        right_before=9,
        boxes={"reference": 7, "subject": 0},
    ),
)
UNGIVEN = not_compared("sam.page", Reason.NOT_GIVEN)
LEFT = payload(UNGIVEN, case=case_payload("left", MATCH, UNGIVEN, verdict="MATCH", passes=False, counts={"MATCH": 1}))
LESS = [not_compared(name, Reason.NOT_OFFERED) for name in ("sam.page/0", "sam.page/1", "input_ids", "artefacts")]

Tests = list[tuple[str, Payload]]
RUNS: dict[str, Tests] = {
    "passes": [("passed", one) for one in RIGHT],
    "passes_with_a_subject_of_ones_own": [("passed", payload(MATCH, run=OWN))],
    "passes_live": [("passed", payload(MATCH, run=LIVE))],
    "fails": [("passed", RIGHT[1]), ("failed", BROKEN)],
    "left_uncompared": [("passed", RIGHT[1]), ("failed", LEFT)],
    "compared_nothing": [("passed", payload())],
    "raised": [("passed", RIGHT[0]), ("error", payload(fault=FAULT)), ("error", payload(fault=FAULT))],
    "not_offered": [("passed", payload(MATCH, *LESS, run=OWN)), ("skipped", payload(left_out="not offered"))],
    "above_the_subject": [
        ("passed", payload(MATCH, *LESS, run=OWN)),
        *[("skipped", payload(left_out=level)) for level in ("L2", "L1", "L1", "L3")],
    ],
    "may_be_missing": [("passed", RIGHT[0]), ("skipped", LOST)],
    "missing": [("passed", RIGHT[0]), ("error", LOST), ("error", LOST)],
    "known_to_fail": [("passed", RIGHT[0]), ("xfailed", payload(WRONG))],
}


@pytest.mark.parametrize("tests", RUNS.values(), ids=RUNS)
def test_every_line(tests: Tests, snapshot: SnapshotAssertion) -> None:
    told = texts(result(*tests, reason="why"), written=("dsocr-out/dsocr.json", "dsocr-out/index.html"))
    assert all(len(line) <= COLUMNS for line in told)
    assert "\n".join(told) == snapshot


@pytest.mark.parametrize(
    ("run", "colours"),
    [
        ("passes", [GOOD, GOOD]),
        ("fails", [BAD, BAD, BAD]),  # what was counted, the case, the verdict
        ("compared_nothing", [BAD, BAD]),
        ("may_be_missing", [GOOD, NOTED, GOOD]),
        ("missing", [GOOD, BAD, BAD]),
    ],
)
def test_what_is_right_is_green_and_what_is_not_is_red(run: str, colours: list[dict[str, bool]]) -> None:
    assert [line.markup for line in Summary(result(*RUNS[run])).lines if line.markup] == colours


def test_compression_is_over_all_cases_that_are_counted() -> None:
    counted = [{"vision_tokens": 256, "text_tokens": 512}, {"vision_tokens": 64, "text_tokens": 128}, None]
    cases = [case_payload(f"c{k}", compression=one) for k, one in enumerate(counted)]
    found = result(*(("passed", payload(MATCH, run=RUN, case=case)) for case in cases))
    line = next(line for line in texts(found) if line.startswith("compression"))
    assert re.findall(r"[\d.]+", line) == ["160", "2.00", "2"]
    told = found.to_json()["compression"]
    assert told == {"cases": 2, "vision_tokens_per_page": 160.0, "text_tokens_per_vision_token": 2.0}


def test_of_many_cases_the_first_are_told_and_the_others_counted() -> None:
    wrong = {"verdict": "WRONG", "passes": False}
    cases = [case_payload(f"c{k}", WRONG, first_wrong=f"clip.page/{k}", **wrong) for k in range(MOST + 3)]
    told = texts(result(*(("failed", payload(WRONG, case=case)) for case in cases)))
    assert sum(line.startswith("WRONG ") for line in told) == MOST
    assert [line.strip() for line in told if "more" in line] == ["and 3 more"]


def test_a_drift_that_is_suspicious_is_told_where_it_begins() -> None:
    first = replace(DRIFT, what="clip.page/3", error=3e-6, signs=frozenset((Sign.SUSPICIOUS,)))
    case = case_payload("a", MATCH, first, replace(first, what="clip.page"), worst_error=3e-6)
    [line] = [one for one in texts(result(("passed", payload(first, case=case)))) if one.startswith("SUSPICIOUS")]
    assert line.startswith("SUSPICIOUS      a, clip.page/3: 3.0e-06, larger than any error")


def test_what_failed_is_run_again_with_the_runs_own_options() -> None:
    told = texts(result(("failed", BROKEN)), options=("--dsocr-subject=mine:Model", "-k", "a or b"))
    assert told[-1] == "    pytest 'test_case.py::test[0]' --dsocr-subject=mine:Model -k 'a or b'"


def test_a_fault_in_the_telling_is_told_in_one_line_and_does_not_raise() -> None:
    broken = result(("passed", RIGHT[0]))
    broken.tests["x"] = None  # type: ignore[assignment]
    told = list(Summary(broken).lines)
    assert told[-1].text.startswith("the summary cannot be told (AttributeError(")
    assert told[-1].markup == BAD


def test_text_of_unknown_origin_cannot_steer_the_terminal() -> None:
    case = case_payload("\x1b[2Jgone\rfine", WRONG, passes=False, verdict="WRONG", first_wrong="\x9b31m")
    told = "".join(texts(result(("failed", payload(WRONG, case=case)))))
    assert told.isprintable()
    assert r"\x1b[2Jgone\rfine" in told


def test_a_run_that_was_not_there_to_compare_is_told_nothing() -> None:
    reporter: Any = _Reporter()
    Summary(begun()).show(reporter)
    assert reporter.written == []
    Summary(result(("passed", RIGHT[0]))).show(reporter)
    assert reporter.written[0] == "= DeepSeek-OCR: subject and reference"
    assert "verdict         passes" in reporter.written


class _Reporter:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write_sep(self, sep: str, title: str) -> None:
        self.written.append(f"{sep} {title}")

    def write_line(self, line: str, **markup: bool) -> None:
        self.written.append(line)


def texts(made: RunResult, **given: Any) -> list[str]:
    return [line.text for line in Summary(made, **given).lines]
