"""Tensors that the engine computes: the right one, and that for the subject's own input."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.explain.recompute import Clean, Segment
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.inside import Inside
from pytest_dsocr.records.names import TensorName


class Seen(NamedTuple):
    """The subject's tensor, and the inputs of the block or stage that returned it."""

    what: str
    gave: Tensor
    given: tuple[Tensor, ...] = ()
    alone: bool = False
    """Whether wrong inputs have another cause, and are not described."""
    inside: Inside = Inside()
    """Calls of the modules inside of a block."""
    front: Inside = Inside()
    """Calls of the modules before a stage's first block."""


@lru_cache(1)  # for the script that shows the difference, which is written next
def right_of(clean: Clean, name: TensorName) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the right tensor of a seam, and the right inputs of the block or stage that returns it."""
    if name.block is not None:
        segment = Segment(clean, str(name), has_blocks=True)
        return segment.compute(None), [segment.block_input]
    if name.view:
        return clean.features(name.stage, name.view), clean.stage_inputs(name.stage, name.view)
    if name.stage == FUSION:
        return clean.fused, clean.to_fuse
    given = [] if clean.in_prompt is None else [clean.in_prompt]
    return clean.run(name.stage, ""), given


def compute(clean: Clean, name: TensorName, seen: Seen) -> Tensor | None:
    """Return the engine's output for the subject's own input; None if it does not take that."""
    engine, device = clean.engine, clean.engine.model.device
    given = tuple(one.to(device) for one in seen.given)
    if not given:
        return None
    out: Tensor | None = None
    with suppress(RuntimeError, IndexError, ValueError, DsocrError):
        if name.block is not None or name.view:
            out = ComputedPart(name.stage, str(name), seen.gave, given, name.block, clean.image).compute(engine)
        elif name.stage == FUSION:
            out = clean.fuse(given)
        elif name.stage == PREFILL:
            out = engine.pipeline.prefill_with(clean.inputs, given[0]).logits[0]
    return out if out is not None and out.shape == seen.gave.shape else None


computed = lru_cache(1)(compute)
"""Function like :func:`compute` for the right weights; the script that shows the difference needs its last result."""
