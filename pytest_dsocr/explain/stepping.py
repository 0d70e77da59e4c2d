"""Descriptions of the cache and of attention in steps, by an engine that takes the same steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.describe.attended import StepAttention, describe_attended
from pytest_dsocr.describe.cache import NOISE, describe_cache, describe_taken, first_wrong, has_far_rows, rows_of
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.layout import IN_FEWER_BITS
from pytest_dsocr.describe.measured import is_time_over
from pytest_dsocr.explain.described import Earlier
from pytest_dsocr.explain.mistake import Changes, blocks_of, model_of
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.layers.attention import AttentionFunction, repeat_heads
from pytest_dsocr.models.spec import PREFILL

Queries = Mapping[int, list[Tensor]]
"""Queries of each layer, one tensor ``[N, D]`` a step."""


def describe_kept(
    clean: Clean,
    tokens: Sequence[int],
    kept: Sequence[tuple[Tensor, Tensor]],
    attended: Mapping[int, Tensor],
    earlier: Earlier | None = None,
) -> Description | None:
    """Describe a cache after the prompt and these tokens, or the attention of the layer before the first wrong one.

    Args:
        clean: right tensors of the page.
        tokens: those of the steps.
        kept: the subject's keys and values of each layer.
        attended: its results of attention in the last steps ``[T, C]``, by layer; nothing for layers that hide them.
        earlier: pages that were read before, whose keys and values may be kept in place of the page's own.
    """
    engine, queries = clean.engine, defaultdict[int, list[Tensor]](list)
    with torch.no_grad(), Changes() as changes:
        state = engine.pipeline.prefill_with(clean.inputs, clean.in_prompt)
        for k, block in enumerate(blocks_of(engine, PREFILL)):
            changes.set(block.self_attn, "attend", partial(_noted, block.self_attn.attend, queries[k]))
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
    seen = {layer: own for layer, own in sorted(attended.items()) if layer < last}
    for layer, own in seen.items():
        keys, values = (one[0].float().cpu() for one in (cache.keys(layer), cache.values(layer)))
        steps = [*_steps(queries[layer], keys, values, own)]
        wrong = [one for one in steps if one.error > noise]
        if wrong:
            size = f"relative error {max(one.error for one in wrong):.2g} at {len(wrong)} of {len(steps)} steps"
            made = describe_attended(wrong) or Description("steps", size, 1.0, len(wrong))
            text = f"in steps, attention in layer {layer} is wrong, though its keys and values are right: {made.text}"
            return replace(made, text=text)
        if found and layer == last - 1:
            return replace(found, text=f"{found.text}; its attention is right, and what follows in the layer is wrong")
    return found


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
