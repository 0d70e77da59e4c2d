"""Descriptions of the tensor where a case breaks, computed in the explaining process by an engine without a mistake.

The engine's tensor counts as the expected one only if it agrees with the reference's summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.describe.attention import describe_block
from pytest_dsocr.describe.block import Block
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.experts import Mixed, describe_experts
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.describe.pair import simplest
from pytest_dsocr.describe.pixels import describe_pixels
from pytest_dsocr.describe.tensors import describe_tensor
from pytest_dsocr.describe.windows import describe_windows, has_windows, one_window
from pytest_dsocr.explain.mistake import Changes, blocks_of, home_of, model_of
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.explain.recompute import Clean, Segment
from pytest_dsocr.explain.search import distance
from pytest_dsocr.layers.decoder import DecoderLayer
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam, pixels_sha256

POSITIONS = "pos"
"""Part of the names of parameters that are added as positions."""
NEARER = 10
"""Factor by which one tensor must be nearer than another to count as right."""


class Seen(NamedTuple):
    """The subject's tensor, and the inputs of the block or stage that returned it."""

    what: str
    gave: Tensor
    given: tuple[Tensor, ...] = ()


def describe_seen(clean: Clean, seen: Seen, expected: Seam | str) -> list[Description]:
    """Describe how the subject's tensor differs from the expected one; return nothing if that is not known.

    If the engine's block reproduces the tensor from the subject's own input, the input is described, because the block
    is right. Otherwise the tensor is compared with the output of the engine's block for the same input.

    Args:
        clean: right tensors of the page.
        seen: the subject's tensor.
        expected: summary of the reference's tensor, or the digest of its pixels.
    """
    if isinstance(expected, str):
        right = getattr(clean.inputs, seen.what)
        found = describe_pixels(seen.gave, right.cpu(), clean.grid) if pixels_sha256(right.cpu()) == expected else None
        return [found] if found else []
    with torch.no_grad():
        return [*_of_seam(clean, seen, expected)]


def _of_seam(clean: Clean, seen: Seen, expected: Seam) -> Iterator[Description]:
    name = TensorName.parse(seen.what)
    right, right_given = _right(clean, name)
    total = _error(seen.gave, right)
    if distance(expected, Seam.of(right)) > total / NEARER:
        return
    own = _computed(clean, name, seen)
    inside = total if own is None else _error(seen.gave, own)
    is_right = own is not None and inside * NEARER <= total
    least = 0.0 if is_right else total / NEARER
    errors = [_error(given, one) for given, one in zip(seen.given, right_given, strict=False)]
    if not is_right:
        given = seen.given[0] if len(seen.given) == 1 else None
        found = [*_described(clean, name, seen.gave, right if own is None else own, given)]
        inner = None
        if own is not None and given is not None and not any(one.explains for one in found):
            inner = _of_part(clean, name, seen.gave, own, given)
        yield from [inner] if inner else found
    whose = "the block" if name.block is not None else "the stage"
    words = f"{whose} itself is right, and its input is wrong: " if is_right else f"the input of {whose} is wrong: "
    for given, one, error in zip(seen.given, right_given, errors, strict=False):
        if own is not None and error > least:
            yield from (replace(of, text=words + of.text) for of in _of_input(clean, name, given, one))


def _of_input(clean: Clean, name: TensorName, given: Tensor, right: Tensor) -> Iterator[Description]:
    """Describe a wrong input; of a first block, also what is added to it as positions."""
    found = [*_described(clean, name, given, right, None)]
    if name.block == 0 and name.view and not any(one.explains for one in found):
        positions = right - _without_positions(clean, name)
        added = given.to(right.device) - (right - positions)
        if positions.any():
            of_positions = [*_described(clean, name, added, positions, None)]
            if any(one.explains for one in of_positions):
                yield from (replace(one, text=f"of the positions that are added, {one.text}") for one in of_positions)
                return
    yield from found


def _without_positions(clean: Clean, name: TensorName) -> Tensor:
    """Return the right input of a stage's first block without positions."""
    owner, attribute = home_of(clean.engine, name.stage)
    assert owner is not None
    with Changes() as changes:
        for path, parameter in owner.named_parameters():
            if POSITIONS in path and not path.startswith(attribute):
                changes.weight(parameter, torch.zeros_like(parameter))
        return Segment(clean, str(name), has_blocks=True).block_input


def _of_part(clean: Clean, name: TensorName, gave: Tensor, own: Tensor, given: Tensor) -> Description | None:
    """Describe the part of a block that differs, from the subject's own input, in the first view that differs."""
    if name.block is None:
        return None
    engine = clean.engine
    block = blocks_of(engine, name.stage)[name.block]
    view = int((gave.float() - own.float().cpu()).flatten(1).norm(dim=1).argmax())
    gave, own, given = (one[view : view + 1].to(engine.model.device) for one in (gave, own, given))
    pair = pair_of(gave, own, channels_last=True)
    found: list[Description | None] = []
    with engine.pipeline.running(name.stage):
        if isinstance(block, DecoderLayer) and isinstance(block.mlp, MixtureOfExperts):
            before = ComputedPart(name.stage, str(name), gave, (given,), name.block).attended(engine)
            tokens = block.post_attention_layernorm(before)[0]
            found.append(describe_experts(Mixed(pair, block.mlp, tokens, before[0])))
        if has_windows(block):
            found.append(describe_windows(block, given, pair))
            given, pair = one_window(given, gave, own, block.window)
        rope, mask = (*model_of(engine).block_arguments(name.stage, given), None, None)[:2]
        sees = mask == 0 if isinstance(mask, torch.Tensor) else None
        found.append(describe_block(Block(block, given, rope and rope.inverse_frequencies, sees), pair))
    return simplest(found)


def _right(clean: Clean, name: TensorName) -> tuple[Tensor, Sequence[Tensor]]:
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


def _computed(clean: Clean, name: TensorName, seen: Seen) -> Tensor | None:
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
            *crops, page = given
            out = engine.pipeline.vision_fusion(crops[0] if crops else None, page, clean.grid)
        elif name.stage == PREFILL:
            out = engine.pipeline.prefill_with(clean.inputs, given[0]).logits[0]
    return out if out is not None and out.shape == seen.gave.shape else None


def _described(
    clean: Clean, name: TensorName, actual: Tensor, right: Tensor, given: Tensor | None
) -> Iterator[Description]:
    is_prompt = name.stage == PREFILL and name.block is not None
    how: dict[str, Any] = {"channels_last": name.block is not None, "given": given}
    if is_prompt:
        how["image"] = clean.inputs.images_seq_mask[0].cpu()
    elif name.stage in (FUSION, PREFILL) and right.ndim == 2:
        how["crops"] = clean.grid
    found = describe_tensor(pair_of(actual, right, **how))
    if found is not None:
        yield found


def _error(actual: Tensor, right: Tensor) -> float:
    """Return the relative error of a tensor; infinite if the shapes differ or a value is not finite."""
    if actual.shape != right.shape:
        return float("inf")
    right = right.float().cpu()
    error = float((actual.float().cpu() - right).norm() / right.norm().clamp_min(1e-30))
    return error if error == error else float("inf")
