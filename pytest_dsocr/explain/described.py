"""Descriptions of the tensor where a case breaks, computed in the explaining process by an engine without a mistake.

The engine's tensor counts as the expected one only if it agrees with the reference's summary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract import PIXELS
from pytest_dsocr.contract.image import load_images
from pytest_dsocr.describe.attention import describe_block
from pytest_dsocr.describe.block import RIGHT, Block
from pytest_dsocr.describe.description import ENOUGH, Description, ErrorPanel
from pytest_dsocr.describe.error_map import error_map
from pytest_dsocr.describe.experts import Mixed, describe_experts
from pytest_dsocr.describe.head import Head, of_head, of_hidden
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.describe.measured import measured, measured_in_time
from pytest_dsocr.describe.pair import EXACT, RowPair, share, simplest, worst_of
from pytest_dsocr.describe.pixels import describe_pixels
from pytest_dsocr.describe.resizing import Source
from pytest_dsocr.describe.rounding import FORMS
from pytest_dsocr.describe.tensors import describe_tensor, of_earlier
from pytest_dsocr.describe.windows import describe_windows, has_windows, one_window
from pytest_dsocr.describe.wiring import error_of
from pytest_dsocr.explain.computed import Seen, compute, computed, right_of
from pytest_dsocr.explain.inside import of_early_end, of_inside, of_other_block
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of, without_positions
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.explain.recompute import Clean, Segment
from pytest_dsocr.explain.search import distance
from pytest_dsocr.layers.decoder import DecoderLayer
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.inside import Inside
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam, pixels_sha256

OF_MANY_NUMBERS = ("vector", "scaled-channels", "scaled-rows", "offset-rows", "low-rank")
"""Kinds of descriptions that say less than the steps inside do."""
OF_EXPERTS = "experts"
"""Kind of a description of the experts as a whole."""
NEARER = 10
"""Factor by which one tensor must be nearer than another to count as right."""


Earlier = Mapping[str, Callable[[], Clean]]
"""Right tensors of pages that were read before, by their cases."""


def describe_seen(
    clean: Clean, seen: Seen, expected: Seam | str, case: Case | None = None, earlier: Earlier | None = None
) -> list[Description]:
    """Describe how the subject's tensor differs from the expected one; return nothing if that is not known.

    If the engine's block reproduces the tensor from the subject's own input, the input is described, because the block
    is right. Otherwise the tensor is compared with the output of the engine's block for the same input.

    Args:
        clean: right tensors of the page.
        seen: the subject's tensor.
        expected: summary of the reference's tensor, or the digest of its pixels.
        case: the page, from which pixels are made again.
        earlier: pages to look for in what nothing else describes.
    """
    if isinstance(expected, str):
        right = getattr(clean.inputs, seen.what).cpu()
        page = load_images(case.page) if case else None
        source = Source(page, case.preset, seen.what == PIXELS[1]) if case and isinstance(page, Image.Image) else None
        is_known = pixels_sha256(right) == expected
        found = [*measured(describe_pixels, seen.gave, right, clean.grid, source)] if is_known else []
        return [replace(own, places=_places(clean, seen, right)) for own in found]
    with torch.no_grad():
        right, given = right_of(clean, TensorName.parse(seen.what))
        places = _places(clean, seen, right)
        found = [*measured(_of_seam, clean, seen, expected, right, given)]
        if not any(one.says_how and one.kind not in OF_MANY_NUMBERS for one in found):
            found = [*measured_in_time(_of_earlier, clean, seen, right, given, earlier or {})] or found
        return [replace(one, places=places) for one in found]


def _of_earlier(
    clean: Clean, seen: Seen, right: Tensor, right_given: Sequence[Tensor], earlier: Earlier
) -> Iterator[Description]:
    """Yield that the subject's tensor, or an input of it, has rows of a page that was read before."""
    name = TensorName.parse(seen.what)
    for page, other in earlier.items():
        there, given_there = right_of.__wrapped__(other(), name)
        trials = [("", seen.gave, right, there)]
        for own, expected, one in zip(seen.given, right_given, given_there, strict=False):
            trials.insert(0, ("its input is wrong: ", own, expected, one))
        for words, own, expected, one in trials:
            if own.shape != expected.shape:
                continue
            found = of_earlier(_pair(clean, name, own, expected), _pair(clean, name, one, one).actual, page)
            if found is not None and found.explains:
                yield replace(found, text=words + found.text)
                return


def _places(clean: Clean, seen: Seen, right: Tensor) -> tuple[ErrorPanel, ...]:
    """Return the errors of the subject's tensor by place; nothing if its shape is wrong."""
    name = TensorName.parse(seen.what)
    if seen.gave.shape != right.shape:
        return ()
    image = clean.inputs.images_seq_mask[0].cpu() if name.stage == PREFILL and name.block is not None else None
    is_of_crops = name.view == "crops" or seen.what == PIXELS[0]
    pair = pair_of(seen.gave, right, channels_last=name.block is not None, image=image)
    return error_map(pair, clean.image_tokens, image, is_of_crops=is_of_crops)


def _of_seam(
    clean: Clean, seen: Seen, expected: Seam, right: Tensor, right_given: Sequence[Tensor]
) -> Iterator[Description]:
    name = TensorName.parse(seen.what)
    total = error_of(seen.gave, right)
    if distance(expected, Seam.of(right)) > total / NEARER:
        return
    own = computed(clean, name, seen)
    inside = total if own is None else error_of(seen.gave, own)
    is_right = own is not None and inside * NEARER <= total
    least = 0.0 if is_right else total / NEARER
    errors = [error_of(given, one) for given, one in zip(seen.given, right_given, strict=False)]
    if not is_right:
        yield from measured(_of_output, clean, name, seen, right, own)
    if seen.alone:
        return
    whose = "the block" if name.block is not None else "the stage"
    words = f"{whose} itself is right, and its input is wrong: " if is_right else f"the input of {whose} is wrong: "
    for given, one, error in zip(seen.given, right_given, errors, strict=False):
        if own is not None and error > least:
            yield from (
                replace(of, text=words + of.text) for of in measured(_of_input, clean, name, given, one, seen.front)
            )


def _of_output(clean: Clean, name: TensorName, seen: Seen, right: Tensor, own: Tensor | None) -> list[Description]:
    """Describe an output by the steps inside, by another computation of the whole, or by its values alone."""
    given = seen.given[0] if len(seen.given) == 1 else None
    found = [*_described(clean, name, seen.gave, right if own is None else own, given)]
    known = next((one for one in found if one.explains), None)
    steps = next(measured(of_inside, clean, name, seen.inside, seen.given), None)
    if known and known.says_how and known.kind not in OF_MANY_NUMBERS:
        return found
    if steps and steps.share >= EXACT:
        if name.stage == PREFILL and own is not None and given is not None:
            part = next(measured_in_time(_of_part, clean, name, seen.gave, own, given), None)
            steps = part if part and part.kind == OF_EXPERTS and part.share >= EXACT else steps
        return [steps]
    if known and known.says_how:
        return [replace(known, text=f"{known.text}; {steps.text}")] if steps else found
    inner = None if own is None else next(measured(_of_whole, clean, name, seen, own, given), None)
    if inner and inner.explains:
        return [replace(inner, text=f"{known.text}; there {inner.text}") if known else inner]
    left = known or steps or inner
    return [left] if left else found


def _of_whole(clean: Clean, name: TensorName, seen: Seen, own: Tensor, given: Tensor | None) -> Description | None:
    """Describe an output by another computation of the block or stage from its input."""
    if name.block is None and clean.engine.family.stage[name.stage].blocks:
        again = partial(compute, clean, name, seen)
        if early := next(measured_in_time(of_early_end, clean, name, seen.gave, again), None):
            return early
    part = None if given is None else next(measured_in_time(_of_part, clean, name, seen.gave, own, given), None)
    if part and part.explains:
        return part
    weights = next(measured_in_time(_of_weights, clean, name, seen, own), None)
    if weights is None and given is not None and name.block is not None:
        return next(measured_in_time(of_other_block, clean, name, seen.gave, given), part)
    return weights or part


def _of_input(clean: Clean, name: TensorName, given: Tensor, right: Tensor, front: Inside) -> Iterator[Description]:
    """Describe a wrong input; of a first block, also what is added to it as positions."""
    found = [*_described(clean, name, given, right, None)]
    is_known = any(one.explains for one in found)
    if not any(one.says_how and one.kind not in OF_MANY_NUMBERS for one in found):
        steps = next(measured(partial(of_inside, is_front=True), clean, name, front), None)
        if steps and (not is_known or steps.share >= EXACT):
            yield steps
            return
    if name.block == 0 and name.view and not is_known:
        with without_positions(clean.engine, name.stage):
            positions = right - Segment(clean, str(name), has_blocks=True).block_input
        added = given.to(right.device) - (right - positions)
        if positions.any():
            of_positions = [*_described(clean, name, added, positions, None)]
            if any(one.explains for one in of_positions):
                yield from (replace(one, text=f"of the positions that are added, {one.text}") for one in of_positions)
                return
    yield from found


def _of_weights(clean: Clean, name: TensorName, seen: Seen, own: Tensor) -> Description | None:
    """Describe the form to which the weights of a block or stage are rounded, if one gives the subject's tensor."""
    stage = clean.engine.family.stage[name.stage]
    if name.block is None and (stage.blocks or not stage.module):
        return None
    home = model_of(clean.engine).get_submodule(stage.module) if name.block is None else None
    home = home or blocks_of(clean.engine, name.stage)[name.block or 0]
    weights = [one for one in home.parameters() if one.ndim > 1]
    for words, rounded in FORMS.items():
        with Changes() as changes:
            for one in weights:
                changes.weight(one, rounded(one).to(one.dtype))
            made = compute(clean, name, seen)
        if made is None or not weights:
            return None
        left, before = (float((seen.gave.float() - one.float().cpu()).norm()) for one in (made, own))
        if 1 - left / before >= ENOUGH:
            whose = "the weight is" if len(weights) == 1 else f"the {len(weights)} weights are"
            return Description("rounded", f"{whose} held in {words}", 1 - left / before, own.numel())
    return None


def _of_views(block: Any, given: Tensor, view: int, pair: RowPair) -> Description | None:
    """Describe views that attend to one another; the vendor encodes each view separately."""
    count, tokens = given.shape[:2]
    if count < 2 or given.ndim != 3:
        return None
    rows = torch.arange(tokens, device=given.device)
    packed = Block(block, given.flatten(0, 1)[None]).compute(RIGHT, view * tokens + rows)
    text = f"the tokens of each view attend to those of all {count} views"
    return Description("mask", text, share(pair, packed[None].float().cpu()), tokens)


def _of_part(clean: Clean, name: TensorName, gave: Tensor, own: Tensor, given: Tensor) -> Description | None:
    """Describe the part of a block that differs, from the subject's own input, in the first view that differs."""
    if name.block is None:
        return None
    engine = clean.engine
    block = blocks_of(engine, name.stage)[name.block]
    view = worst_of(gave.float(), own.float().cpu())
    views = given.to(engine.model.device)
    gave, own, given = (one[view : view + 1].to(engine.model.device) for one in (gave, own, given))
    pair = pair_of(gave, own, channels_last=True)
    found: list[Description] = []
    with engine.pipeline.running(name.stage):
        if isinstance(block, DecoderLayer) and isinstance(block.mlp, MixtureOfExperts):
            before = ComputedPart(name.stage, str(name), gave, (given,), name.block).attended(engine)
            tokens = block.post_attention_layernorm(before)[0]
            found += measured(describe_experts, Mixed(pair, block.mlp, tokens, before[0]))
        if not isinstance(block, DecoderLayer):
            found += measured(_of_views, block, views, view, pair)
        if has_windows(block):
            found += measured_in_time(describe_windows, block, given, pair)
            given, pair = one_window(given, gave, own, block.window)
        rope, mask = (*model_of(engine).block_arguments(name.stage, given), None, None)[:2]
        sees = mask == 0 if isinstance(mask, torch.Tensor) else None
        found += measured_in_time(describe_block, Block(block, given, rope and rope.inverse_frequencies, sees), pair)
    return simplest(found)


def _described(
    clean: Clean, name: TensorName, actual: Tensor, right: Tensor, given: Tensor | None
) -> Iterator[Description]:
    found = next(measured(describe_tensor, _pair(clean, name, actual, right, given)), None)
    if found is not None and not found.explains and name.stage == PREFILL and name.block is None:
        found = simplest(_of_logits(clean, actual, right, given)) or found
    if found is not None:
        yield found


def _of_logits(clean: Clean, actual: Tensor, right: Tensor, given: Tensor | None) -> Iterator[Description]:
    """Yield how the logits differ, by what is computed after the last block or by the state that gives them."""
    model, before = model_of(clean.engine), list[Tensor]()
    with model.model.norm.register_forward_hook(lambda _, args, __: before.append(args[0][0])):
        prompt = clean.in_prompt if given is None else given.to(clean.engine.model.device)
        clean.engine.pipeline.prefill_with(clean.inputs, prompt)
    after = Head(model.model.norm, model.lm_head, model.model.embed_tokens.weight.data, before[0])
    yield from measured(of_head, actual, right, after)
    yield from measured(of_hidden, actual, right, model.lm_head.weight.data, model.model.norm.weight.data)


def _pair(clean: Clean, name: TensorName, actual: Tensor, right: Tensor, given: Tensor | None = None) -> RowPair:
    is_prompt = name.stage == PREFILL and name.block is not None
    how: dict[str, Any] = {"channels_last": name.block is not None, "given": given}
    if is_prompt:
        how["image"] = clean.inputs.images_seq_mask[0].cpu()
    elif name.stage == FUSION:
        how["tokens"] = clean.image_tokens
    return pair_of(actual, right, **how)
