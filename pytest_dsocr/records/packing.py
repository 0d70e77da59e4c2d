"""Observations as JSON with named tensors, for the worker's pipe and for recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract import COMPARED, GRID, ROWS
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import (
    Artefact,
    Best,
    InputsDigest,
    NotFinite,
    Output,
    ReferenceResult,
    Seam,
    SpanSeen,
    Step,
)

PackedValue = tuple[dict[str, Any], dict[str, Tensor]]
"""A JSON value, and its tensors."""


def without_values(observation: ReferenceResult) -> ReferenceResult:
    """Return the observation without whole tensors, as a recording stores it."""
    seams = {name: replace(seam, values=None) for name, seam in observation.seams.items()}
    return replace(observation, inputs=replace(observation.inputs, values=None), seams=seams)


def pack(observation: ReferenceResult) -> PackedValue:
    """Split an observation into JSON and its tensors, all of which are kept."""
    inputs, tensors = pack_inputs(observation.inputs)
    seams = {}
    for name, seam in observation.seams.items():
        seams[name] = {key: getattr(seam, key) for key in ("shape", "dtype", "sha256", "mean", "std", "norm")}
        if seam.not_finite is not None:
            seams[name]["not_finite"] = seam.not_finite
        kinds = {"sample": seam.sample, "sketch": seam.sketch, "values": seam.values}
        tensors |= {f"{kind}/{name}": tensor for kind, tensor in kinds.items() if tensor is not None}
    tensors |= _pack_best("prefill", [observation.prefill_best])
    tensors |= _pack_best("steps", [step.best for step in observation.steps])
    packed = {
        "case_id": observation.case_id,
        "inputs": inputs,
        "seams": seams,
        "tokens": observation.token_ids,
        "output": _pack_output(observation.output),
    }
    return packed, tensors


def unpack(packed: Mapping[str, Any], tensors: Mapping[str, Tensor], provenance: Provenance | None) -> ReferenceResult:
    """Put an observation together again; raise ``KeyError``, ``TypeError`` or ``ValueError`` if parts are invalid."""
    seams = {name: _unpack_seam(name, summary, tensors) for name, summary in packed["seams"].items()}
    [prefill_best], best = _unpack_best("prefill", tensors), _unpack_best("steps", tensors)
    return ReferenceResult(
        case_id=packed["case_id"],
        inputs=unpack_inputs(packed["inputs"], tensors),
        seams=seams,
        prefill_best=prefill_best,
        steps=tuple(Step(token, one) for token, one in zip(packed["tokens"], best, strict=True)),
        output=_unpack_output(packed["output"]),
        provenance=provenance,
    )


def pack_inputs(inputs: InputsDigest) -> PackedValue:
    """Split inputs into JSON and tensors."""
    tensors = {f"inputs/{name}": tensor for name, tensor in (inputs.values or {}).items()}
    return {name: getattr(inputs, name) for name in COMPARED}, tensors


def unpack_inputs(packed: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> InputsDigest:
    """Put inputs together again."""
    values = {name.removeprefix("inputs/"): value for name, value in tensors.items() if name.startswith("inputs/")}
    return InputsDigest(
        **{name: tuple((a, b) for a, b in packed[name]) for name in (*ROWS, GRID)},
        images_crop=packed["images_crop"],
        images_ori=packed["images_ori"],
        dtypes=tuple(packed["dtypes"]),
        values=values or None,
    )


def _unpack_seam(name: str, summary: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Seam:
    exact: dict[str, Any] = {"shape": tuple(summary["shape"])}
    if "not_finite" in summary:  # left out if all values are finite
        nans, infinities, values, first = summary["not_finite"]
        exact["not_finite"] = NotFinite(nans, infinities, values, tuple(first))
    return Seam(
        **{**summary, **exact},
        sample=tensors[f"sample/{name}"],
        sketch=tensors[f"sketch/{name}"],
        values=tensors.get(f"values/{name}"),
    )


def _pack_best(name: str, best: Sequence[Best]) -> dict[str, Tensor]:
    ids = torch.tensor([one.ids for one in best], dtype=torch.int32)
    logits = torch.tensor([one.logits for one in best], dtype=torch.float32)
    return {f"best_ids/{name}": ids, f"best_logits/{name}": logits}


def _unpack_best(name: str, tensors: Mapping[str, Tensor]) -> list[Best]:
    rows = (tensors[f"{kind}/{name}"].tolist() for kind in ("best_ids", "best_logits"))
    return [Best(tuple(ids), tuple(logits)) for ids, logits in zip(*rows, strict=True)]


def _pack_output(output: Output) -> dict[str, Any]:
    artefacts = {name: [artefact.bytes, artefact.size_px] for name, artefact in output.artefacts.items()}
    return {"text": output.text, "spans": output.spans, "mmd": output.mmd, "artefacts": artefacts}


def _unpack_output(packed: Mapping[str, Any]) -> Output:
    artefacts = {
        name: Artefact(size_bytes, None if size_px is None else (size_px[0], size_px[1]))
        for name, (size_bytes, size_px) in packed["artefacts"].items()
    }
    spans = tuple(SpanSeen(label, tuple(Box(*box) for box in boxes)) for label, boxes in packed["spans"])
    return Output(packed["text"], spans, packed["mmd"], artefacts)
