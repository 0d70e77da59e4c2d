"""What fewer bits cost, stage by stage: a subject's stages up to one, the vendor's behind it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.budget import divergence
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.records.subject_result import SubjectResult

DECODER = "decoder"
"""Prefill and the steps, which are not exchanged apart."""


def cost_of_stages(engine: Engine[Any], answer: SubjectResult, expected: ReferenceResult) -> dict[str, float]:
    """Return what each stage of a subject adds to the divergence from the reference, in nats.

    Vision's tensors of the subject are put in the place of the engine's, one stage more at a time; what the decoder
    costs is the rest. A stage whose tensors the subject does not give is in the cost of the next that it does.

    Args:
        engine: the vendor's kernels in the subject's dtype, on its device.
        answer: of a subject with stages, whole.
        expected: what the reference did.
    """
    if answer.input_tensors is None or not answer.forced or not answer.vision_tensors:
        return {}
    inputs = Inputs(**{name: tensor.to(engine.model.device) for name, tensor in answer.input_tensors.items()})
    features = _vision(engine, inputs, {})
    before = _divergence(engine, inputs, features, expected)
    found = {}
    for stage, given in _more_and_more(engine, answer.vision_tensors):
        made, now = _vision(engine, inputs, given), before
        if made.dtype != features.dtype or not torch.equal(made, features):  # of equal ones the decoder makes the same
            now = _divergence(engine, inputs, made, expected)
        found[stage], before, features = now - before, now, made
    pairs = zip(answer.forced, expected.steps, strict=True)
    return {**found, DECODER: fmean(divergence(own.at_reference, step.best.logits) for own, step in pairs) - before}


def _more_and_more(engine: Engine[Any], seams: Mapping[str, Tensor]) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """Yield each stage that the subject shows, and its tensors up to there."""
    given: dict[str, Tensor] = {}
    for stage in (*(one.name for one in engine.family.of_views), FUSION):
        own = {name: tensor for name, tensor in seams.items() if TensorName.parse(name).stage == stage}
        if own:
            given |= own
            yield stage, given


def _vision(engine: Engine[Any], inputs: Inputs, given: Mapping[str, Tensor]) -> Tensor:
    """Return the features ``[T, C]`` that the engine makes of the pixels and of what it is given in its own's place."""
    made = {TensorName.parse(name)[:2]: tensor for name, tensor in given.items()}
    return given[FUSION] if FUSION in given else Clean(engine, inputs, made).fused


def _divergence(engine: Engine[Any], inputs: Inputs, features: Tensor, expected: ReferenceResult) -> float:
    """Return that of what the decoder makes of ``features`` along the tokens, in one pass."""
    own = torch.tensor([expected.token_ids[:-1]], dtype=inputs.input_ids.dtype, device=inputs.input_ids.device)
    mask = torch.zeros_like(own, dtype=inputs.images_seq_mask.dtype)
    longer = replace(
        inputs,
        input_ids=torch.cat([inputs.input_ids, own], 1),
        images_seq_mask=torch.cat([inputs.images_seq_mask, mask], 1),
    )
    logits = engine.pipeline.prefill_with(longer, features, all_logits=True).all_logits
    assert logits is not None
    steps = zip(logits[0, -len(expected.steps) :], expected.steps, strict=True)
    return fmean(divergence(row[list(step.best.ids)].tolist(), step.best.logits) for row, step in steps)
