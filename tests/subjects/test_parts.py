"""Parts of an implementation, which the engine completes. The engine's own stages are not compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pytest_dsocr.compare.case import CaseReport
from pytest_dsocr.compare.verdict import Reason, Verdict
from pytest_dsocr.contract import COMPARED, TENSORS
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.calls import watching
from pytest_dsocr.subjects.engine import engine_subject
from pytest_dsocr.subjects.loading import BY_ENGINE, level_before_loading, load_subject, offers_before_loading
from pytest_dsocr.subjects.protocol import Setup, level_of
from tests.subjects.seen import compared, held_to

SETUP = Setup("synthetic:tiny")
SEEN = ("vision_fusion", "sam.page", "clip.page", "projector.page")
DECODED = ("prefill", "prefill_best", "logits", "tokens")


class Part:
    """Has what the engine has, right or wrong."""

    scale = 1.0

    def __init__(self, setup: Setup) -> None:
        self.own = engine_subject(setup)


class Inputs(Part):
    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        made = self.own.inputs(page, prompt=prompt, preset=preset)
        return {**made, "images_ori": made["images_ori"] * self.scale}


class Sees(Part):
    seams = ("sam.page",)

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = self.own.vision(inputs)
        return {"sam.page": found["sam.page"], "vision_fusion": found["vision_fusion"] * self.scale}


class Sam(Part):
    def sam(self, pixels: Tensor) -> Tensor:
        return self.own.engine.pipeline.encode("sam", pixels) * self.scale


class Decodes(Part):
    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        return self.own.prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        return self.own.step(state, token) * self.scale


OWN = {
    "Inputs": (*COMPARED, "text"),
    "Sees": ("sam.page", "vision_fusion", "text"),
    "Sam": ("sam.page", "text"),
    "Decodes": (*DECODED, "read", "text"),
}
"""Comparisons of each part on a page without crops; the rest is the engine's."""
BOXES = {"spans", "boxes"}
FIRST = {"Inputs": "images_ori", "Sees": "vision_fusion", "Sam": "sam.page", "Decodes": "logits"}
"""First comparison that a mistake in the part changes."""


def held(
    name: str, case: Case, expected: ReferenceResult, isolated_s: float | None = None
) -> tuple[CaseReport, list[str]]:
    notes: list[str] = []
    with watching(notes):
        return held_to(expected, case, f"{__name__}:{name}", isolated_s), notes


@pytest.mark.parametrize("name", OWN)
def test_the_parts_own_stages_and_the_text_are_compared_and_nothing_else(
    name: str, case: Case, expected: ReferenceResult
) -> None:
    report, notes = held(name, case, expected)
    assert report.passes
    assert compared(report) - BOXES == {*OWN[name]}
    others = [one for one in report.comparisons if one.verdict is Verdict.NOT_COMPARED]
    assert {one.reason for one in others if one.what in (*TENSORS, *SEEN, *DECODED)} == {Reason.NOT_OFFERED}
    assert len(notes) == 1
    assert notes[0].endswith(": the subject's; the rest: the built-in engine's, which is not compared")


@pytest.mark.parametrize("name", FIRST)
def test_a_mistake_in_a_part_is_found_at_its_stage(
    name: str, case: Case, expected: ReferenceResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Part, "scale", -1.0)
    report, _ = held(name, case, expected)
    assert report.divergence is not None
    assert report.divergence.first.what == FIRST[name]
    assert {one.what for one in report.comparisons if one.verdict is Verdict.WRONG} >= {FIRST[name], "text"}
    assert compared(report) - BOXES <= {*OWN[name]}


@pytest.mark.dsocr_slow
def test_in_a_process_of_its_own_it_is_the_same(case: Case, expected: ReferenceResult) -> None:
    report, notes = held("Sam", case, expected, 600.0)
    assert (report.passes, compared(report) - BOXES, notes[1:]) == (True, {*OWN["Sam"]}, [BY_ENGINE])


def test_what_is_a_part_is_known_before_it_is_loaded() -> None:
    for name in OWN:
        spec = f"{__name__}:{name}"
        level = level_before_loading(spec)
        assert level is (Level.INPUTS if name == "Inputs" else Level.STAGES)
        assert "; the rest: the built-in engine's" in offers_before_loading(spec).summary
        with watching([]):
            assert level is level_of(load_subject(spec, SETUP))
