"""The next stage of a port, by what a result says of each stage."""

from dataclasses import replace

import pytest
from msgspec import convert

from pytest_dsocr.compare.observations import STAGES
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, lost, not_compared
from pytest_dsocr.contract import GRID
from pytest_dsocr.models import VISION
from pytest_dsocr.models.deepseek_ocr import FAMILY
from pytest_dsocr.models.spec import Stage
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.report.case_result import Fault
from pytest_dsocr.report.document import RunJson
from pytest_dsocr.report.port import MOST_LINES, lines, next_work, offered
from pytest_dsocr.report.strip import OF_STAGE
from tests.report.made import DRIFT, MATCH, WRONG, case_payload, night, payload

SHAPES = {"sam.page": (1, 192, 16, 16), "clip.page": (1, 257, 192)}
ALL = [name for stage in FAMILY.stages for name in offered(stage)]
STEPS = {"tokens": {"reference": 4, "subject": 4}}


def result(*changed: Comparison, **of_case: object) -> RunJson:
    """Return the result of a port that offers everything, with some comparisons changed."""
    own = {name: replace(MATCH, what=name) for name in ALL} | {one.what: one for one in changed}
    case = case_payload("a", *own.values(), **{**STEPS, **of_case})
    return convert(night(("passed", payload(MATCH, case=case)), cases=[case]), RunJson)


def found(given: RunJson) -> tuple[str, str] | None:
    work = next_work(given, FAMILY, SHAPES)
    return (work.stage, work.state) if work else None


def test_every_comparison_of_a_case_belongs_to_one_stage() -> None:
    named = [name for names in OF_STAGE.values() for name in names]
    assert len(named) == len({*named})
    of_stages = {stage.name for stage in FAMILY.stages}
    assert {*STAGES} <= {*named, *of_stages, *VISION}
    assert {*OF_STAGE} <= of_stages


def test_a_port_that_offers_everything_has_nothing_next() -> None:
    assert found(result()) is None
    assert found(result(replace(DRIFT, what="sam.page"), not_compared("artefacts", Reason.NOT_OFFERED))) is None


@pytest.mark.parametrize("stage", FAMILY.stages, ids=lambda stage: stage.name)
def test_a_stage_that_is_skipped_is_missing_whatever_is_right_after_it(stage: Stage) -> None:
    for one in offered(stage):
        assert found(result(not_compared(one, Reason.NOT_OFFERED))) == (stage.name, "missing")


def test_steps_that_are_left_out_are_missing() -> None:
    for own in (3, None):
        assert found(result(tokens={"reference": 4, "subject": own})) == ("decode", "missing")


@pytest.mark.parametrize(
    ("reason", "state"),
    [(Reason.NOT_IN_REFERENCE, "machine"), (Reason.NOT_GIVEN, "missing"), (Reason.INCOMPLETE, "missing")],
)
def test_what_is_not_compared_is_no_error_of_a_port_that_raised_none(reason: Reason, state: str) -> None:
    work = next_work(result(not_compared("clip.page", reason)), FAMILY, SHAPES)
    assert work
    assert (work.stage, work.state) == ("clip", state)


def test_values_that_neither_side_has_are_not_missing() -> None:
    assert found(result(not_compared("clip.page", Reason.NEITHER))) is None


def test_causes_of_later_stages_are_shown_with_the_first() -> None:
    later = {"what": "clip.page/0", "explained": "with the exact GELU", "proven": True, "mistakes": ["CLIP-01"]}
    work = next_work(
        result(replace(WRONG, what="sam.page"), findings=["tokens are wrong"], further=[later]), FAMILY, {}
    )
    assert work
    assert work.why == ["also wrong: clip.page/0: with the exact GELU (proven)"]


def test_the_first_stage_in_the_order_of_the_data_is_next_and_others_are_right() -> None:
    wrong = [replace(WRONG, what=what) for what in ("logits", "clip.page/2", "text")]
    assert found(result(*wrong)) == ("clip", "wrong")
    work = next_work(result(*wrong), FAMILY, SHAPES)
    assert work
    assert work.right == ["preprocess", "tokenizer", "sam"]
    assert (work.takes, work.gives) == (["sam.page: float32 [1, 192, 16, 16]"], ["clip.page: float32 [1, 257, 192]"])
    assert any("NoTPAttention" in one and one.startswith("deepencoder.py") for one in work.vendor)


def test_what_is_missing_names_nothing_that_a_port_may_leave_out() -> None:
    absent = [not_compared(one, Reason.NOT_OFFERED) for one in ("sam.page/0", "sam.page", "sam.crops", "dtypes")]
    work = next_work(result(*absent), FAMILY, SHAPES)
    assert work
    assert work.found == ["sam.crops, sam.page"]


def test_a_stage_without_a_cause_asks_for_its_blocks() -> None:
    asked = []
    for what, named in (("prefill", []), ("prefill", ["ROPE-01"]), ("prefill/2", []), ("projector.page", [])):
        work = next_work(result(replace(WRONG, what=what), first_wrong=what, mistakes=named), FAMILY, SHAPES)
        assert work
        asked.append(any("prefill.0" in one for one in work.why))
    assert asked == [True, False, False, False]


def test_steps_that_are_left_out_are_counted() -> None:
    work = next_work(result(tokens={"reference": 4, "subject": 1}), FAMILY, SHAPES)
    assert work
    assert work.found == ["1 of 4 steps"]


def test_a_stage_names_all_that_it_is_made_of() -> None:
    fusion, projector = (
        next_work(result(not_compared(one, Reason.NOT_OFFERED)), FAMILY, SHAPES | {GRID: (1, 2)})
        for one in ("vision_fusion", "projector.page")
    )
    assert fusion
    assert any(one.startswith(GRID) for one in fusion.takes)
    assert projector
    assert any("DeepseekOCRModel.forward" in one for one in projector.vendor)


def test_a_test_of_no_case_names_its_stage_once_and_runs_alone() -> None:
    wrong = replace(WRONG, what="vision_fusion/zero sum", details=())
    said = f"{wrong.what}: {wrong.measured}"
    clean = case_payload("a", *(replace(MATCH, what=name) for name in ALL), **STEPS)
    failed = ("failed", payload(wrong, why=said))
    given = convert(night(("passed", payload(MATCH, case=clean)), failed, cases=[clean]), RunJson)
    work = next_work(given, FAMILY, SHAPES)
    assert work
    assert (work.stage, work.right[-1], work.case) == ("vision_fusion", "projector", "")
    assert work.found == ["test_case.py::test[1]", said]
    assert any(work.alone in line for line in lines(work, "pytest.txt", "dsocr port"))
    assert "test[1]" in work.alone


def test_stages_from_a_given_one_on_are_not_looked_at() -> None:
    assert next_work(result(replace(WRONG, what="text")), FAMILY, SHAPES, "decode") is None
    assert next_work(result(replace(WRONG, what="prefill")), FAMILY, SHAPES, "decode")


def test_a_stage_that_raises_or_is_to_be_filled_in() -> None:
    for why, state in (("raised in vision (KeyError: 1)", "raised"), ("raised (NotImplementedError: x)", "missing")):
        error = SubjectFaultError("vision", why)
        given = result(*(lost(f"{name}.page", error) for name in ("sam", "clip")), fault=Fault.of(error))
        assert found(given) == ("sam", state)


def test_it_is_one_screen_however_much_differs() -> None:
    many = [replace(WRONG, what=name, details=("x" * 500,) * 9, measured="y" * 900) for name in ALL]
    work = next_work(result(*many, explained="z " * 900, findings=["f " * 400] * 9), FAMILY, SHAPES)
    assert work
    shown = [*lines(work, "pytest.txt", "dsocr port " + "--pages=x " * 90)]
    assert len(shown) <= MOST_LINES
    assert shown[-1].endswith(f"dsocr port {'--pages=x ' * 90}")
    assert Verdict.WRONG.lower() in shown[0]
