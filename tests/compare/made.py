"""Observations and answers made up for tests, and what two of them have in common to the last bit."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.diff import plain_line
from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import (
    Artefact,
    Best,
    InputsDigest,
    Output,
    ReferenceResult,
    Seam,
    SpanSeen,
    Step,
)
from pytest_dsocr.records.subject_result import ForcedStep, SubjectResult
from pytest_dsocr.records.summing import bytes_sha256

PAGE_TEXT = (
    "<|ref|>title<|/ref|><|det|>[[88, 40, 510, 66]]<|/det|>\n# Minutes of the meeting\n\n"
    "<|ref|>text<|/ref|><|det|>[[88, 90, 910, 170]]<|/det|>\nThose present agreed to meet again in 14 days.\n"
)
OUTPUT = Output(
    text="<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nMinutes",
    spans=(SpanSeen("title", (Box(1, 2, 3, 4),)), SpanSeen("image", (Box(5, 6, 7, 8), Box(9, 10, 11, 12)))),
    mmd="# Minutes\n",
    artefacts={
        "result.mmd": Artefact(10),
        "images/0.jpg": Artefact(812, (30, 20)),
        "result_with_boxes.jpg": Artefact(99_000, (850, 1300)),
        "info.json": Artefact(400),
    },
)

STEPS = (
    Step(7, Best((7, 3, 9), (8.0, 4.0, 2.0))),
    Step(3, Best((3, 7, 9), (8.0, 7.0, 2.0))),
    Step(1, Best((1, 9, 3), (8.0, 6.0, 5.0))),
)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return normal values that are the same at every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def input_tensors() -> dict[str, Tensor]:
    """Return the five tensors of a page with two crops, shrunk."""
    return {
        "input_ids": torch.tensor([[0, 500, 500, 500, 21, 22, 22, 500]]),
        "images_seq_mask": torch.tensor([[False, True, True, True, False, False, False, True]]),
        "images_spatial_crop": torch.tensor([[2, 1]]),
        "images_crop": random(2, 3, 4, 4, seed=1).bfloat16(),
        "images_ori": random(1, 3, 6, 6, seed=2).bfloat16(),
    }


def seam_tensors() -> dict[str, Tensor]:
    return {
        "sam.page": random(1, 4, 3, 3, seed=3),
        "vision_fusion": random(9, 4, seed=4),
        "prefill": random(12, seed=5),
    }


def observation(*, keep_values: bool = False, **changes: Any) -> ReferenceResult:
    """Return an observation of three steps, with ``changes`` to its fields."""
    made = ReferenceResult(
        case_id="page-tiny-free",
        inputs=InputsDigest.of(input_tensors(), keep_values=keep_values),
        seams={name: Seam.of(tensor, keep_values=keep_values) for name, tensor in seam_tensors().items()},
        prefill_best=Best((7, 3, 9, 4), (8.0, 4.0, 2.0, 1.0)),
        steps=STEPS,
        output=OUTPUT,
    )
    return replace(made, **changes)


def along(steps: Sequence[Step]) -> tuple[ForcedStep, ...]:
    """Return the steps of a subject that says the same as the reference."""
    return tuple(ForcedStep(step.token, step.best, step.best.logits) for step in steps)


def answer(of: ReferenceResult, level: Level = Level.STAGES, **changes: Any) -> SubjectResult:
    """Return the result of a subject that equals the reference, up to ``level`` and except for ``changes``."""
    made = SubjectResult(of.case_id, level, of.output.text, of.output.spans, of.output.mmd, of.output.artefacts)
    if level >= Level.INPUTS:
        made = replace(made, inputs=of.inputs)
    if level >= Level.STAGES:
        made = replace(made, seams=of.seams, promised=frozenset(of.seams))
        made = replace(made, prefill_best=of.prefill_best, forced=along(of.steps))
    return replace(made, **changes)


def reading(output: Output) -> SubjectResult:
    """Return the answer of a subject that offers its output alone."""
    return SubjectResult("page-tiny-free", Level.TEXT, output.text, output.spans, output.mmd, output.artefacts)


def shown(found: Comparison) -> str:
    """All that a comparison says, for a snapshot."""
    error = "" if found.error is None else f" [{found.error:.3g}]"
    signs = (f"sign: {sign}" for sign in sorted(found.signs))
    diff = (f"diff: {plain_line(line)}" for line in found.diff)
    return "\n    ".join((f"{found.verdict} {found.what}: {found.measured}{error}", *found.details, *diff, *signs))


def every_bit(value: object) -> object:
    """Turn a value into one that equals another's only where types, tensors and numbers are the same bit for bit."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), bytes_sha256(value)
    if is_dataclass(value):
        return type(value).__name__, {f.name: every_bit(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: every_bit(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [every_bit(one) for one in value]
    return type(value).__name__, value.hex() if isinstance(value, float) else value
