"""Recordings of the vendor's ``infer``: its inputs for pages, and its parsing of many outputs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from pytest_dsocr.contract.artifacts import split_pages
from pytest_dsocr.contract.markup import OutputForm, clean_output
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.packing import pack_inputs
from pytest_dsocr.records.reference_result import InputsDigest
from pytest_dsocr.reference.goldens import facts_of
from tests.recordings import FOLDER, recording_of

INPUTS = {family: recording_of("inputs", family) for family in MODELS.values()}
UNLIMITED = MODELS["unlimited_ocr"].form
OUTPUTS: dict[OutputForm, dict[str, Any]] = {
    family.form: json.loads((facts_of(FOLDER, family) / "postprocess.json").read_text(encoding="utf-8"))
    for family in MODELS.values()
}
PAGE_SIZE = (1000, 1400)


def digest(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the JSON values that a recording keeps of the tensors of ``Inputs``."""
    values: dict[str, Any] = json.loads(json.dumps(pack_inputs(InputsDigest.of(tensors))[0]))
    return values


@dataclass(frozen=True)
class Recorded:
    """A recorded output: the vendor's spans, outlines in pixels and files, or its error."""

    form: OutputForm
    text: str
    error: str | None
    spans: list[list[str]]
    outlines: list[list[int]]
    mmd: str
    figures: dict[str, list[int]]
    files: list[str]
    pages: list[list[int]] | None = None
    """Sizes of the pages if the output is of several pages in one prompt."""

    @property
    def read(self) -> list[tuple[str, Sequence[int]]]:
        """Text and size of each page."""
        if self.pages is None:
            return [(clean_output(self.text), PAGE_SIZE)]
        return list(zip(split_pages(self.text), self.pages, strict=False))


CASES = [Recorded(form, **case) for form, outputs in OUTPUTS.items() for case in outputs["cases"].values()]
IDS = [f"{form.result_file}-{name}" for form, outputs in OUTPUTS.items() for name in outputs["cases"]]
each_recorded_output = pytest.mark.parametrize("recorded", CASES, ids=IDS)


def span(label: str, coordinates: str) -> str:
    """Write a span as the model does."""
    return f"<|ref|>{label}<|/ref|><|det|>{coordinates}<|/det|>"


TITLE, TEXT = span("title", "[[94, 60, 905, 101]]"), span("text", "[[94, 120, 905, 300]]")
IMAGE = span("image", "[[100, 320, 500, 600]]")
GEOMETRY = OUTPUTS[DEEPSEEK_OCR.form]["cases"]["geometry"]["text"].removesuffix(EOS)
