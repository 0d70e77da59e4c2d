"""A whole case: what is compared, in which order and under which limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tokens import ForcedStep
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, worst
from pytest_dsocr.observation import Best, InputsDigest, Observation, Seam, Step
from suites.meta.compare.made import OUTPUT, STEPS, input_tensors, observation, seam_tensors

LIMITS = Tolerances("float32", seam=1e-3, logits=1e-1, ties=64, mantissa_bits=23)
INPUTS = ["input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"]
SEAMS = ["sam.page", "vision_fusion", "prefill"]
REST = ["prefill_best", "logits", "tokens", "text", "spans", "boxes", "result.mmd", "artefacts"]


def along(steps: tuple[Step, ...]) -> list[ForcedStep]:
    return [ForcedStep(step.token, step.best, step.best.logits) for step in steps]


def compared(mine: Observation, forced: list[ForcedStep] | None = None, **theirs: Any) -> dict[str, Comparison]:
    reference = observation(**theirs)
    forced = along(reference.steps) if forced is None else forced
    found = list(compare_observations(mine, forced, reference, LIMITS))
    assert len({comparison.what for comparison in found}) == len(found)
    return {comparison.what: comparison for comparison in found}


@pytest.mark.parametrize("keep_values", [True, False])
def test_everything_of_a_case_is_compared_in_the_stages_order(keep_values: bool) -> None:
    found = compared(observation(keep_values=keep_values))
    assert list(found) == [*INPUTS, *SEAMS, *REST]
    assert {comparison.verdict for comparison in found.values()} == {Verdict.MATCH}


def test_first_tokens_have_the_limit_of_logits_and_other_seams_their_own() -> None:
    scaled = {name: Seam.of(tensor * 1.01) for name, tensor in seam_tensors().items()}
    found = compared(observation(seams=scaled))
    assert [found[name].verdict for name in SEAMS] == [Verdict.WRONG, Verdict.WRONG, Verdict.DRIFT]
    assert worst(found.values()) is Verdict.WRONG


def test_seams_of_either_side_alone_are_listed_and_not_compared() -> None:
    theirs = observation().seams
    mine = {"extra": theirs["sam.page"], "prefill": theirs["prefill"], "sam.page": theirs["sam.page"]}
    found = compared(observation(seams=mine))
    assert list(found)[6:10] == ["sam.page", "vision_fusion", "prefill", "extra"]
    assert {name for name, one in found.items() if one.verdict is Verdict.NOT_COMPARED} == {"vision_fusion", "extra"}


def test_each_part_is_held_against_the_references() -> None:
    other_ids = {**input_tensors(), "input_ids": input_tensors()["input_ids"] + 1}
    changes: dict[str, tuple[Any, str]] = {
        "inputs": (InputsDigest.of(other_ids), "input_ids"),
        "prefill_best": (Best((7, 3, 9, 4), (99.0, 4.0, 2.0, 1.0)), "prefill_best"),
        "output": (replace(OUTPUT, mmd=""), "result.mmd"),
    }
    for field, (value, what) in changes.items():
        found = compared(observation(**{field: value}))
        assert [name for name, one in found.items() if one.verdict is not Verdict.MATCH] == [what]


def flipped(at: int, apart: float) -> tuple[tuple[Step, ...], list[ForcedStep]]:
    """Steps of which one has its best two so far apart, and the subject taking the second there."""
    first, second = STEPS[at].best.ids[:2]
    close = Step(STEPS[at].token, Best((first, second), (8.0, 8.0 - apart)))
    steps = (*STEPS[:at], close, *STEPS[at + 1 :])
    forced = along(steps)
    forced[at] = replace(forced[at], token=second)
    return steps, forced


@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_follows_a_tie_is_laid_to_it(at: int) -> None:
    steps, forced = flipped(at, 2.0**-20)
    found = compared(observation(output=replace(OUTPUT, text="other")), forced, steps=steps)
    assert found["tokens"].verdict is Verdict.TIE_FLIP
    assert found["text"].verdict is Verdict.TIE_FLIP
    assert found["text"].measured.startswith(f"follows the tie at step {at}: parts at character 0")


def test_what_follows_a_wrong_token_or_none_is_wrong() -> None:
    other = observation(output=replace(OUTPUT, text="other"))
    steps, forced = flipped(1, 1.0)
    assert compared(other, forced, steps=steps)["text"].verdict is Verdict.WRONG
    assert compared(other)["text"].verdict is Verdict.WRONG
    tied, forced = flipped(0, 0.0)
    forced[2] = replace(forced[2], token=5)
    assert compared(other, forced, steps=tied)["text"].verdict is Verdict.WRONG


def test_a_reference_without_steps_compares_none() -> None:
    found = compared(observation(), [], steps=())
    assert found["tokens"].verdict is found["logits"].verdict is Verdict.NOT_COMPARED
    assert found["text"].verdict is Verdict.MATCH
