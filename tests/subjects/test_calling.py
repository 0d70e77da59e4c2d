"""Subjects that call their modules in ways of their own: right ones pass, wrong ones are found as before."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.observations import OTHER_ORDER, compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.passes import SURPLUS, places_of
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.records.subject_result import SubjectResult
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from tests.crops import cropped_case
from tests.subjects import calling
from tests.subjects.calling import called

Kind = type[Pipeline[Any]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return cropped_case(tmp_path_factory.mktemp("pages"), "markdown", 2)


@pytest.fixture(scope="module")
def expected(tiny: Engine[Any], case: Case) -> ReferenceResult:
    """Return what the engine gives in the vendor's way, with its blocks."""
    found = EngineRuntime(EngineSubject(tiny), None, lambda *_: None).observe(case)  # type: ignore[arg-type]
    assert sum("/" in name for name in found.seams) == len(found.seams) - 8
    return found


Answered = Callable[[Kind], SubjectResult]


@pytest.fixture
def answered(tiny: Engine[Any], case: Case, expected: ReferenceResult) -> Answered:
    return lambda kind: run_teacher_forced(called(tiny, kind), case, expected)


def compared(answer: SubjectResult, expected: ReferenceResult) -> list[Comparison]:
    assert answer.fault is None
    return list(compare_observations(answer, expected, tolerances("float32")))


def left_out(found: Sequence[Comparison]) -> dict[str, str]:
    """Return the names of blocks that are not comparable, with the reason."""
    return {one.what: one.measured.partition(": ")[2] for one in found if one.reason is Reason.NOT_BY_BLOCK}


@pytest.mark.parametrize("kind", [calling.CropsByTwo, calling.PageFirst, calling.WarmedUp])
def test_everything_is_compared_however_modules_are_called(
    kind: Kind, answered: Answered, expected: ReferenceResult
) -> None:
    found = {one.what: one for one in compared(answered(kind), expected)}
    assert {name: found[name].verdict for name in expected.seams if not found[name].passes} == {}
    assert {name for name in expected.seams if found[name].verdict is Verdict.NOT_COMPARED} == set()
    assert all(one.passes for one in found.values())


@pytest.mark.parametrize(
    ("kind", "views", "why"),
    [
        (calling.CropsReversed, ("sam.crops", "clip.crops"), OTHER_ORDER),
        (calling.Padded, ("sam.crops", "sam.page", "clip.crops", "clip.page", "prefill"), SURPLUS),
    ],
)
def test_blocks_without_a_known_place_are_left_out_and_all_else_is_compared(
    kind: Kind, views: Sequence[str], why: str, answered: Answered, expected: ReferenceResult
) -> None:
    found = compared(answered(kind), expected)
    assert all(one.passes for one in found)
    assert left_out(found) == dict.fromkeys(
        (name for name in expected.seams if name.startswith(tuple(f"{one}/" for one in views))), why
    )
    made = {one.what for one in found if one.verdict is not Verdict.NOT_COMPARED}
    assert {name for name in expected.seams if "/" not in name} | {"logits", "tokens", "text"} <= made


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (calling.OneCropTwice, "sam.crops/0"),
        (calling.NotPutBack, "sam.crops/0"),
        (calling.RestartedPositions, "prefill/0"),
        (calling.LostToken, "prefill/0"),
        (calling.ExtraToken, "prefill"),
    ],
)
def test_a_mistake_in_such_a_call_is_wrong(
    kind: Kind, first: str, answered: Answered, expected: ReferenceResult
) -> None:
    found = compared(answered(kind), expected)
    assert next(one.what for one in found if one.verdict is Verdict.WRONG) == first


@pytest.mark.parametrize("kind", [calling.PageFirst, calling.Padded])
def test_blocks_are_computed_again_from_what_their_calls_were_given(
    kind: Kind, tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    asked = CheckedSubject(called(tiny, kind))
    inputs = asked.inputs(case)
    parts = {one.name: one for one in parts_of(asked, inputs, places_of(expected.seams, inputs))}
    is_placed = kind is not calling.Padded
    assert {name for name in expected.seams if "/" in name and is_placed} == {name for name in parts if "/" in name}
    for name in [one for one in parts if one.endswith("/1")]:
        again = parts[name].compute(tiny)
        assert again.shape == expected.seams[name].shape
        assert torch.allclose(again, parts[name].gave, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stops_at", [4, 6])
def test_after_an_error_no_part_and_no_warm_up_is_taken_for_the_whole(
    stops_at: int, tiny: Engine[Any], case: Case, expected: ReferenceResult
) -> None:
    subject, calls = called(tiny, calling.WarmedUp), 0

    def fail(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == stops_at:
            raise RuntimeError("no memory")

    handle = model_of(tiny).get_submodule("model.sam_model.blocks.1").register_forward_hook(fail)
    try:
        answer = run_teacher_forced(subject, case, expected)
    finally:
        handle.remove()
    assert answer.fault is not None
    assert answer.fault.stage == "vision"
    found = compare_observations(answer, expected, tolerances("float32"))
    assert [one.what for one in found if one.verdict is Verdict.WRONG] == []
    whole = {4: [], 6: [*(one for one in expected.seams if ".crops/" in one), "sam.page/0"]}
    assert {*answer.seams} == {*whole[stops_at]}
