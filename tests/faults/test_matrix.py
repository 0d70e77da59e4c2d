"""The mistakes and what a run says of them: some are planted on every change, all by the command of their matrix."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import pytest

from tests.faults import explaining
from tests.faults.all import FAULTS, HALVES, PLANTED
from tests.faults.matrix import MATRIX, PAGE
from tests.faults.outcome import STAGES, Outcome
from tests.faults.registry import core_of
from tests.faults.table import table
from tests.faults.trial import loaded, planted, try_fault

KNOWN: Mapping[str, Outcome] = {row["fault"]: Outcome(**row) for row in json.loads(MATRIX.read_text(encoding="utf-8"))}
QUICK = ("PRM-02", "SAM-09", "SAM-W3", "CLP-08", "PRJ-W1", "FUS-01", "MOE-02", "POS-01")
"""One or two of a stage, that the first page shows in front of its first step."""


@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_found_in_its_stage_and_named(name: str) -> None:
    found = try_fault(name, suites=False)
    assert (found.killed, found.stage_right, found.hint_right) == (True, True, True), found


def test_every_mistake_has_words_and_a_stage() -> None:
    stages = {*STAGES, "sam", "clip", "projector", "vision_fusion", "read"}
    for fault in PLANTED.values():
        assert fault.cause, fault.id
        assert fault.stage in stages, fault.id


def test_the_halves_of_the_held_out_set_are_as_large_and_in_no_matrix() -> None:
    assert [len(mistakes) for mistakes in HALVES.values()] == [50, 50]
    assert len(PLANTED) == len(FAULTS) + 100


def test_the_page_of_the_documentation_is_the_matrix() -> None:
    assert PAGE.read_text(encoding="utf-8") == table([KNOWN[name] for name in FAULTS if name in KNOWN])


def test_the_page_of_what_explains_them_is_of_what_was_said() -> None:
    told = [explaining.Told(**row) for row in json.loads(explaining.EXPLAINED.read_text(encoding="utf-8"))]
    assert explaining.PAGE.read_text(encoding="utf-8") == explaining.page(told)
    assert sum(one.is_proven for one in told) / len(told) > 0.8


def test_every_mistake_was_tried_and_what_survives_has_its_reason() -> None:
    assert [*KNOWN] == [*FAULTS]
    assert {one.fault for one in KNOWN.values() if not one.killed} == {
        name for name, fault in FAULTS.items() if fault.unseen
    }


def test_what_is_found_is_found_in_its_stage() -> None:
    assert [name for name, one in KNOWN.items() if one.killed and not one.stage_right] == []


@pytest.mark.parametrize(
    ("name", "first"), [("SCH-04", "input_ids"), ("SCH-05", "input_ids"), ("GRD-12", "images_crop")]
)
def test_what_was_at_hand_is_told_where_prefill_raises(name: str, first: str) -> None:
    assert (KNOWN[name].first, KNOWN[name].hint_right) == (first, True)


def test_a_mistake_that_is_taken_out_leaves_nothing_behind() -> None:
    """Everything that one of them changes: functions of modules, classes, modules of the model, and weights."""
    with planted(FAULTS["PRM-02"]):
        pass  # what is imported when a mistake is planted for the first time is there from here on
    before = _state()
    for fault in PLANTED.values():
        with planted(fault) as subject:
            assert subject
        after = _state()
        assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == set(), fault.id


def _state() -> dict[str, object]:
    """Name what mistakes are put into, each with what it is now."""
    modules = [one for name, one in sys.modules.items() if name.startswith(("pytest_dsocr.", "PIL.Image"))]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    found = {f"{one.__module__}.{one.__qualname__}.{k}": id(v) for one in classes for k, v in vars(one).items()}
    found |= {f"{one.__name__}.{k}": id(v) for one in modules for k, v in vars(one).items()}
    model = core_of(loaded())
    for name, part in model.named_modules():
        found |= {f"{name}.{k}": id(v) for k, v in vars(part).items() if not k.startswith("_")}
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return found | {name: (one.data_ptr(), float(one.double().sum())) for name, one in weights.items()}
