"""Descriptions of the cache and of attention in steps, by an engine that takes the same steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.attended import StepAttention, describe_attended
from pytest_dsocr.describe.attention import ACTIVATIONS
from pytest_dsocr.describe.cache import NOISE, describe_cache, describe_taken, first_wrong, has_far_rows, rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.experts import Mixed, describe_experts
from pytest_dsocr.describe.layout import IN_FEWER_BITS
from pytest_dsocr.describe.measured import is_time_over, measured
from pytest_dsocr.describe.pair import RowPair, share
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.describe.tensors import describe_tensor
from pytest_dsocr.explain.described import Earlier
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.layers.attention import AttentionFunction, repeat_heads
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.models.spec import PREFILL


class Steps(NamedTuple):
    """The subject's tensors of the last steps, by layer; nothing for layers that hide them."""

    attended: Mapping[int, Tensor]
    """Results of attention ``[T, C]``."""
    gave: Mapping[int, Tensor]
    """Outputs ``[T, C]``."""


@dataclass
class _Layer:
    """Right tensors of a layer, one of each step."""

    queries: list[Tensor] = field(default_factory=list)
    """``[N, D]``."""
    attended: list[Tensor] = field(default_factory=list)
    """Input of the second norm, ``[C]``."""
    gave: list[Tensor] = field(default_factory=list)
    """Output ``[C]``."""


def describe_kept(
    clean: Clean,
    tokens: Sequence[int],
    kept: Sequence[tuple[Tensor, Tensor]],
    steps: Steps,
    earlier: Earlier | None = None,
) -> Description | None:
    """Describe a cache after the prompt and these tokens, or the part of the layer before the first wrong one.

    Args:
        clean: tensors of the page that the subject's prompt should give.
        tokens: those of the steps.
        kept: the subject's keys and values of each layer.
        steps: its tensors of the last steps.
        earlier: pages that were read before, whose keys and values may be kept in place of the page's own.
    """
    engine, blocks = clean.engine, blocks_of(clean.engine, PREFILL)
    layers = [_Layer() for _ in blocks]
    with torch.no_grad(), Changes() as changes, ExitStack() as hooks:
        state = engine.pipeline.prefill_with(clean.inputs, clean.in_prompt)
        for one, block in zip(layers, blocks, strict=True):
            changes.set(block.self_attn, "attend", partial(_noted, block.self_attn.attend, one.queries))
            hooks.enter_context(block.register_forward_hook(partial(_note_output, one.gave)))
            norm = block.post_attention_layernorm
            hooks.enter_context(norm.register_forward_pre_hook(partial(_note_input, one.attended)))
        for token in tokens:
            engine.pipeline.decode_step(state, [token])
    cache, noise = state.cache, NOISE if engine.model.dtype is torch.float32 else IN_FEWER_BITS
    right, prompt = _rows(cache), clean.inputs.input_ids.shape[1]
    for page, other in (earlier or {}).items() if has_far_rows(kept, right, prompt) and not is_time_over() else ():
        if (taken := describe_taken(kept, right, _after_prompt(other()), page, prompt, noise)) is not None:
            return taken
    found = describe_cache(kept, right, prompt, noise, model_of(engine).model.inv_freq)
    if (found and found.says_how) or cache.length != prompt + len(tokens):
        return found
    last = first_wrong(kept, right, prompt, noise)
    for layer, own in sorted((layer, own) for layer, own in steps.attended.items() if layer < last):
        keys, values = (one[0].float().cpu() for one in (cache.keys(layer), cache.values(layer)))
        of_layer = [*_steps(layers[layer].queries, keys, values, own)]
        wrong = [one for one in of_layer if one.error > noise]
        if wrong:
            size = f"a relative error of up to {max(one.error for one in wrong):.2g} {_at(len(wrong), len(of_layer))}"
            made = describe_attended(wrong) or Description("steps", size, 1.0, len(wrong))
            text = f"in steps, attention in layer {layer} is wrong, though its keys and values are right: {made.text}"
            return replace(made, text=text)
    if last - 1 in steps.gave:
        with torch.no_grad():
            rest = _of_rest(blocks[last - 1], layers[last - 1], steps.gave[last - 1], noise)
        if rest is not None:
            how = "is wrong after its attention" if last - 1 in steps.attended else "gives another output"
            return replace(rest, text=f"in steps, layer {last - 1} {how}, {rest.text}")
    if found and found.explains and last - 1 in steps.attended:
        return replace(found, text=f"{found.text}; its attention is right, and what follows in the layer is wrong")
    return found


def _of_rest(block: Any, layer: _Layer, own: Tensor, noise: float) -> Description | None:
    """Describe what a layer computes after its attention, if its output is wrong; None if nothing explains it."""
    before, right = (torch.stack(one[-len(own) :]) for one in (layer.attended, layer.gave))
    if own.shape != right.shape:
        return None
    pair = RowPair(own[None].cpu(), right[None].float().cpu(), "step", given=before[None].float().cpu(), noise=noise)
    if not pair.not_equal.any():
        return None
    found: Iterator[Description] = iter(())
    if isinstance(block.mlp, MixtureOfExperts):
        mixed = Mixed(pair, block.mlp, block.post_attention_layernorm(before), before)
        found = measured(describe_experts, mixed)
    others = measured(_of_activations, block, before, pair)
    made = simplest(one for one in chain(found, others, measured(describe_tensor, pair)) if one.explains)
    return None if made is None else replace(made, text=f"{_at(int(pair.not_equal.sum()), len(own))}: {made.text}")


def _at(wrong: int, compared: int) -> str:
    """Name wrong ones of some steps; a page may have more steps than are compared."""
    return f"at {'each' if wrong == compared else wrong} of the {compared} steps compared"


def _of_activations(block: Any, before: Tensor, pair: RowPair) -> Iterator[Description]:
    """Yield other activations of a layer's perceptron, or of all its experts."""
    for name, activation in ACTIVATIONS.items():
        with Changes() as changes:
            changes.set(F, "silu", activation)
            made = before + block.mlp(block.post_attention_layernorm(before))
        yield Description("activation", f"the activation is {name}", share(pair, made[None].float().cpu()), len(before))


def _note_output(kept: list[Tensor], _module: nn.Module, _args: object, out: Tensor) -> None:
    kept.append(out[0, -1])


def _note_input(kept: list[Tensor], _module: nn.Module, args: tuple[Tensor, ...]) -> None:
    kept.append(args[0][0, -1])


def _rows(cache: Any) -> list[tuple[Tensor, Tensor]]:
    return [(rows_of(cache.keys(k)), rows_of(cache.values(k))) for k in range(cache.layers)]


def _after_prompt(clean: Clean) -> list[tuple[Tensor, Tensor]]:
    """Return the right keys and values of a page's prompt."""
    return _rows(clean.engine.pipeline.prefill_with(clean.inputs, clean.in_prompt).cache)


def _noted(usual: AttentionFunction, kept: list[Tensor], q: Tensor, k: Tensor, v: Tensor, lengths: object) -> Tensor:
    kept.append(q[0, :, -1].float().cpu())
    out: Tensor = usual(q, k, v, lengths)  # type: ignore[arg-type]
    return out


def _steps(queries: Sequence[Tensor], keys: Tensor, values: Tensor, own: Tensor) -> Iterator[StepAttention]:
    """Yield the attention of the last steps, each with the keys that it sees."""
    for back, (q, result) in enumerate(zip(reversed(queries), reversed(own), strict=False)):
        seen = slice(0, keys.shape[1] - back)
        if result.numel() == q.numel():
            k, v = (repeat_heads(one[None, :, seen], q[None, :, None])[0] for one in (keys, values))
            yield StepAttention(q, k, v, result.double().view_as(q))
