"""What was recorded of the vendor's ``infer``: the inputs that it made, and what it read in many outputs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.observation.observation import InputsDigest
from pytest_dsocr.observation.packing import pack_inputs
from tests.recordings import FOLDER, recording_of

INPUTS = recording_of("inputs")
OUTPUTS: dict[str, Any] = json.loads((FOLDER / "postprocess.json").read_text(encoding="utf-8"))
PAGE_SIZE: tuple[int, int] = (OUTPUTS["page_size"][0], OUTPUTS["page_size"][1])


def digest(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """JSON values of the tensors named as the fields of ``Inputs``, as a recording keeps them."""
    values: dict[str, Any] = json.loads(json.dumps(pack_inputs(InputsDigest.of(tensors))[0]))
    return values


@dataclass(frozen=True)
class Recorded:
    """One output: what the vendor read in it, drew (outlines, in pixels) and wrote; its error if it raised."""

    text: str
    error: str | None
    spans: list[list[str]]
    outlines: list[list[int]]
    mmd: str
    figures: dict[str, list[int]]
    files: list[str]


CASES: dict[str, Recorded] = {name: Recorded(**case) for name, case in OUTPUTS["cases"].items()}
each_recorded_output = pytest.mark.parametrize("recorded", CASES.values(), ids=CASES.keys())


def span(label: str, coordinates: str) -> str:
    """Write a span as the model does."""
    return f"<|ref|>{label}<|/ref|><|det|>{coordinates}<|/det|>"


TITLE, TEXT = span("title", "[[94, 60, 905, 101]]"), span("text", "[[94, 120, 905, 300]]")
IMAGE = span("image", "[[100, 320, 500, 600]]")
GEOMETRY = CASES["geometry"].text.removesuffix(EOS)
