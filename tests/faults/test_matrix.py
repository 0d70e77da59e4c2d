"""Some mistakes are planted on every change; the commands of the matrix and of the exam plant them all."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from pytest_dsocr.explain.catalogue import mistakes, ports
from tests.exam import SETS, exam
from tests.exam.planting import core_of
from tests.faults.asked_suites import failure
from tests.faults.matrix import CATALOGUE, faults_of, run
from tests.faults.outcome import STAGES, Outcome, of_catalogue
from tests.faults.trial import loaded, planted

QUICK = ("PRM-02", "SAM-09", "SAM-W3", "CLP-08", "PRJ-W1", "FUS-01", "MOE-02", "POS-01")
"""One or two of a stage, that the first page shows in front of its first step."""


def test_mistakes_are_found_in_their_stage_and_named(tmp_path: Path) -> None:
    found = run(CATALOGUE, faults_of(CATALOGUE, QUICK), tmp_path / "quick", suites=False, explain=True)
    assert [one.fault for one in found if not (one.killed and one.stage_right and one.named)] == []
    assert f"proven {len(QUICK)}" in (tmp_path / "quick.md").read_text()


def test_what_was_seen_is_in_the_catalogue_or_cannot_be_planted() -> None:
    assert len(ports()) > 200
    assert {one.mistake for one in ports().values()} - {"", *mistakes()} == set()
    stages = {*STAGES, "sam", "clip", "projector", "vision_fusion", "read"}
    assert {fault.stage for fault in of_catalogue().values()} == stages


def test_the_exam_is_whole_and_none_of_it_is_in_the_catalogue() -> None:
    assert [len(exam(name)) for name in SETS] == [76, 50]
    assert not {*exam("first"), *exam("sealed")} & {*ports(), *mistakes()}
    assert all(one.cause for name in SETS for one in exam(name).values())


def test_a_suite_that_fails_is_told_with_its_test_and_stage() -> None:
    single = partial(torch.set_num_threads, 1)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=single) as process:
        found = process.submit(fails, "suites/contract/test_pixels.py").result()
        nowhere = process.submit(fails, "suites/nowhere.py")
        with pytest.raises(RuntimeError, match="ended with 4"):
            nowhere.result()
    assert found is not None
    assert (found.killed, found.stage_right) == (True, True)
    assert found.first == "suites/contract/test_pixels.py::test_loading[exif]"


def fails(suite: str) -> Outcome | None:
    """What a suite says of a page whose orientation is left alone."""
    return failure(of_catalogue(("IMG-W5",))["IMG-W5"], [suite])


def test_a_mistake_that_is_taken_out_leaves_nothing_behind() -> None:
    """Everything that one of them changes: functions of modules, classes, modules of the model, and weights."""
    faults = [*of_catalogue().values(), *(one for name in SETS for one in faults_of(name).values())]
    with planted(faults[0]):
        pass  # what is imported when a mistake is planted for the first time is there from here on
    before = _state()
    for fault in faults:
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
