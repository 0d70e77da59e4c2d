"""What real ports got wrong, by where it shows first."""

from __future__ import annotations

from pytest_dsocr.compare.symptoms.of_decoder import DECODER
from pytest_dsocr.compare.symptoms.of_inputs import INPUTS
from pytest_dsocr.compare.symptoms.of_output import OUTPUT
from pytest_dsocr.compare.symptoms.of_vision import VISION
from pytest_dsocr.compare.symptoms.scene import Scene, Symptom

SYMPTOMS: tuple[Symptom, ...] = (*INPUTS, *VISION, *DECODER, *OUTPUT)
"""In the stages' order. The first that fits is told; of one stage, the particular ones stand before the general one."""


def likely_cause(scene: Scene) -> str:
    """Say what to check."""
    fitting = (symptom for symptom in SYMPTOMS if symptom.at == scene.first.stage and symptom.shows(scene))
    cause = next((symptom.cause for symptom in fitting), f"what makes {scene.first.what}")
    return cause.replace("{depth}", str(scene.depth))
