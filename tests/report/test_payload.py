"""Payloads from worker to controller, which JSON carries without a loss, whatever the numbers are."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert, to_builtins
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.case import Explanation, FurtherCause
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.describe.description import Description
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.provenance import ENGINE_STANDS_IN
from pytest_dsocr.records.reference_result import SpanSeen
from pytest_dsocr.reference.engine import EngineReference
from pytest_dsocr.reference.opening import WantedReference
from pytest_dsocr.report.case_result import CaseResult, Fault
from pytest_dsocr.report.comparison_result import number, of_number
from pytest_dsocr.report.run_sides import MAY_DIFFER, RunSides
from tests.report.made import DRIFT, MADE, MATCH, config, recorded, report


@pytest.mark.parametrize(
    ("value", "sent", "received"),
    [
        *((None, None, 0.0), (1.5e-7, 1.5e-7, 1.5e-7), (math.inf, "infinite", math.inf)),
        *((-math.inf, "-infinite", -math.inf), (math.nan, "nan", math.inf)),
    ],
)
def test_numbers_that_json_has_no_word_for_go_as_words(value: float | None, sent: Any, received: float) -> None:
    """No limit allows a NaN."""
    assert of_number(value) == json.loads(json.dumps(of_number(value), allow_nan=False)) == sent
    assert number(sent) == received


def test_a_case_is_reported_with_what_broke_and_what_both_sides_took(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    spans = (SpanSeen("title", (Box(1, 2, 3, 4),)),)
    misshapen = Comparison("sam.page", Verdict.WRONG, "shape [1]; the reference has [2]", math.inf)
    said = report(tmp_path, MATCH, DRIFT, misshapen, findings=("right with the reference's pixels",), spans=spans)
    further = FurtherCause(
        Explanation("with x", "clip.page", ("x",), is_proven=True), Description("zero", "all 0", 1.0)
    )
    said = replace(said, exchange=replace(said.exchange, further=(further,)))
    made = CaseResult.of(said, place=4, picture="pages/page.jpg")
    reported = to_builtins(made)
    assert convert(json.loads(json.dumps(reported, allow_nan=False)), CaseResult) == made
    assert reported["cause"] is not None
    assert {**reported, "cause": ""} == snapshot


def test_a_run_by_the_engine_says_so_whether_or_not_a_recording_is_behind_it() -> None:
    wanted = WantedReference(resolve("synthetic:tiny"))
    for behind, where in ((recorded(), "golden/vendor/mini/cpu-float32-eager"), (None, "")):
        reported = RunSides.of(config(reference="engine"), EngineReference(wanted, behind), None)
        assert (reported.reference, reported.where) == ("engine", where)
        assert reported.provenance.overrides == (ENGINE_STANDS_IN,)


def test_settings_are_what_a_verdict_may_depend_on_in_one_order() -> None:
    chosen = config(allow_missing=frozenset(("vendor", "gpu", "snapshot")), tolerances={"text": 0.5})
    made = RunSides.of(chosen, recorded(), None).settings
    assert (made["allow_missing"], made["tolerances"]) == (["gpu", "snapshot", "vendor"], {"text": 0.5})
    assert not {*MAY_DIFFER} & {*made}


def test_a_case_says_whether_the_engine_answered(tmp_path: Path) -> None:
    said = report(tmp_path)
    assert CaseResult.of(said).by_engine is False
    expected = replace(said.exchange.expected, provenance=MADE.with_override(ENGINE_STANDS_IN))
    assert CaseResult.of(replace(said, exchange=replace(said.exchange, expected=expected))).by_engine is True


def test_a_fault_names_its_stage_where_it_has_one_and_whether_it_is_the_machines() -> None:
    fault = SubjectFaultError("vision", "raised")
    assert Fault.of(fault, "a") == Fault("a", "vision", "raised", infrastructure=False)
    assert Fault.of(OSError("gone")) == Fault(None, None, "gone", infrastructure=False)
    fault.__cause__ = MemoryError()
    assert Fault.of(fault).infrastructure is True
