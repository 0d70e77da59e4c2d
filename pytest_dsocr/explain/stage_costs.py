"""Cost of fewer bits by stage, from runs in which the subject does more and more of the stages."""

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
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.records.subject_result import SubjectResult

DECODER = "decoder"
"""Name of prefill and steps together, which are not exchanged one by one."""


def cost_of_stages(engine: Engine[Any], answer: SubjectResult, expected: ReferenceResult) -> dict[str, float]:
    """Return the divergence from the reference that each stage of a subject adds, in nats.

    The subject's vision tensors replace those of the engine, one more stage at a time. The rest is the decoder's. If
    the subject does not show a stage's tensors, the next stage that it shows includes the cost.

    Args:
        engine: engine with the vendor's kernels in the subject's dtype, on its device.
        answer: complete result of a subject that offers stages.
        expected: the reference's result.
    """
    if answer.input_tensors is None or not answer.forced or not answer.vision_tensors:
        return {}
    inputs = Inputs(**{name: tensor.to(engine.model.device) for name, tensor in answer.input_tensors.items()})
    features = _vision(engine, inputs, {})
    before = _divergence(engine, inputs, features, expected)
    found = {}
    for stage, given in _more_and_more(engine, answer.vision_tensors):
        made, now = _vision(engine, inputs, given), before
        if made.dtype != features.dtype or not torch.equal(made, features):  # equal features decode equally
            now = _divergence(engine, inputs, made, expected)
        found[stage], before, features = now - before, now, made
    pairs = zip(answer.forced, expected.steps, strict=True)
    return {**found, DECODER: fmean(divergence(own.at_reference, step.best.logits) for own, step in pairs) - before}


def _more_and_more(engine: Engine[Any], seams: Mapping[str, Tensor]) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """Yield each stage that the subject shows, with the subject's tensors up to this stage."""
    given: dict[str, Tensor] = {}
    for stage in (*(one.name for one in engine.family.of_views), FUSION):
        own = {name: tensor for name, tensor in seams.items() if name.partition(".")[0] == stage}
        if own:
            given |= own
            yield stage, given


def _vision(engine: Engine[Any], inputs: Inputs, given: Mapping[str, Tensor]) -> Tensor:
    """Return the features ``[T, C]`` that the engine makes of the pixels and of the ``given`` tensors."""
    made = {(stage, view): tensor for name, tensor in given.items() for stage, _, view in [name.partition(".")]}
    return given[FUSION] if FUSION in given else Clean(engine, inputs, made).fused


def _divergence(engine: Engine[Any], inputs: Inputs, features: Tensor, expected: ReferenceResult) -> float:
    """Return the divergence of the engine's decoder along the tokens, in one pass over ``features``."""
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
