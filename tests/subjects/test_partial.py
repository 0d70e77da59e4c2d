"""A subject that raises half way, or returns NaN: what it answered is compared, and what was lost is no pass."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.report.case_result import CaseResult, Fault
from pytest_dsocr.report.comparison_result import ComparisonResult
from pytest_dsocr.report.pictures import draw
from pytest_dsocr.report.worker_report import WorkerReport
from pytest_dsocr.run.case import promised_and_absent
from pytest_dsocr.run.substitution import substitute
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.protocol import NotOfferedError
from tests.compare.made import every_bit
from tests.report.made import result
from tests.subjects.seen import judged, seen
from tests.subjects.spoilt import Raising, Reusing, only

LIMITS = tolerances("float32")
PARTS = ("inputs", "vision", "prefill", "step", "read", "write")
RAISES = {"inputs": "tokenizer", "vision": "vision", "prefill": "prefill", "step": "decode"}
"""The stage of each method."""


def test_what_came_before_an_error_is_kept_and_what_comes_after_is_lost_to_it(
    tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    for method, stage in (RAISES | {"text_of": "postprocess", "write": "postprocess"}).items():
        answer = run_teacher_forced(Raising(tiny, method), case, expected)
        first = PARTS.index(method if method in PARTS else "read")
        assert answer.lost == {*PARTS[first:]}, method
        assert answer.fault is not None
        assert (answer.fault.stage, f"no kernel for {method}" in str(answer.fault)) == (stage, True)
        assert (answer.inputs is None) is (method == "inputs")
        assert len(answer.forced or ()) == {"step": 4, "text_of": 6, "write": 6}.get(method, 0)
        if method == "prefill":
            assert {"sam.page/0", "sam.page/1", "sam.page"} <= {*answer.seams}, "blocks that ran are kept"
    for level in (Level.TEXT, Level.INPUTS):
        answer = run_teacher_forced(only(Raising(tiny, "read"), level), case, expected)
        assert (set(answer.lost), answer.inputs is None) == ({"read"}, level is Level.TEXT)


def test_a_case_cut_short_is_no_pass_and_what_was_wrong_before_is_the_first_divergence(
    tiny: Engine[Any], case: Case, expected: ReferenceResult, tmp_path: Path
) -> None:
    report = judged(Raising(tiny, "prefill"), case, expected)
    assert (report.passes, report.verdict, report.divergence) == (False, Verdict.NOT_COMPARED, None)
    reported = CaseResult.of(report)
    assert (reported.passes, reported.first_wrong, reported.verdict) == (False, None, "NOT-COMPARED")
    assert reported.fault == Fault(case.id, "prefill", str(report.fault), infrastructure=False)
    assert draw(report, tmp_path).is_file()
    assert substitute(Raising(tiny, "prefill"), judge(report.exchange, LIMITS)).findings == ()

    class Both(EngineSubject):
        def vision(self, inputs: Any) -> dict[str, Tensor]:
            seams = super().vision(inputs)
            seams["clip.page"].flatten()[2] = torch.nan
            return seams

        def prefill(self, *given: Any) -> Any:
            raise ValueError("features are not finite")

    report = judged(Both(tiny), case, expected)
    assert report.divergence is not None
    assert report.divergence.first.what == CaseResult.of(report).first_wrong == "clip.page"
    assert (CaseResult.of(report).fault is None, report.verdict, report.passes) == (False, Verdict.WRONG, False)


def test_steps_that_are_no_longer_offered_are_promised_by_the_level_and_named_in_the_verdict(
    tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    class Tiring(EngineSubject):
        asked = 0

        def step(self, state: Any, token: int) -> Any:
            self.asked += 1
            if self.asked > 1:
                raise NotOfferedError("not offered: more than one step")
            return super().step(state, token)

    report = judged(Tiring(tiny), case, expected)
    assert report.passes
    assert promised_and_absent(Level.STAGES, report) == "step"
    made = [ComparisonResult.of(one) for one in report.comparisons]
    given = WorkerReport(comparisons=made, case=CaseResult.of(report))
    steps = len(expected.steps)
    assert result(("passed", given)).verdict == f"passes, {steps - 2} of {steps} steps not offered"


def test_an_error_in_what_a_subject_says_of_itself_is_one_of_its_stage(
    tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    for name, stage in (("seams", "vision"), ("module", "vision"), ("policy", "decode"), ("write", "postprocess")):
        raising = (lambda self, path: 1 / 0) if name == "module" else property(lambda self: 1 / 0)
        shy: Any = type("Shy", (Raising,), {name: raising})
        fault = run_teacher_forced(shy(tiny, "close"), case, expected).fault
        assert fault is not None, name
        assert fault.stage == stage
        assert isinstance(fault.__cause__, ZeroDivisionError)


def test_buffers_that_are_used_again_and_inputs_that_are_overwritten_change_nothing(
    tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    report = judged(Reusing(tiny), case, expected)
    assert {one.verdict for one in report.comparisons} == {Verdict.MATCH}
    live = seen(tiny, case, keep_values=True)
    report = judged(Reusing(tiny), case, live)
    assert {one.verdict for one in report.comparisons} == {Verdict.MATCH}
    actual = report.exchange.answer
    assert actual.inputs is not None
    assert every_bit(actual.inputs.values) == every_bit(live.inputs.values)
    kept = {name: actual.seams[name].values for name in live.seams}
    assert every_bit(kept) == every_bit({name: seam.values for name, seam in live.seams.items()})
