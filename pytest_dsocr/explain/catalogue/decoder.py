"""Mistakes of the decoder as it reads the prompt: embeddings, attention, rotary positions, the last norm, the head."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.engine import pipeline
from pytest_dsocr.explain.catalogue import blocks
from pytest_dsocr.explain.catalogue.attention import add_decoder_attention, capped
from pytest_dsocr.explain.catalogue.blocks import DTYPES, NOT_FINITE, TensorChange, rounded, rounding, unit
from pytest_dsocr.explain.catalogue.experts import CAPACITIES, add_experts
from pytest_dsocr.explain.catalogue.exponentials import EXPONENTIALS
from pytest_dsocr.explain.catalogue.numbers import add_numbers, linear_in
from pytest_dsocr.explain.catalogue.rotary import add_rotary
from pytest_dsocr.explain.mistake import Mistake, Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin, wraps
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import PREFILL

SIGNS = {
    **NOT_FINITE,
    Symptom.LATER_ROWS: ("positions-bfloat16", "window-128", "experts-room-100"),
    Symptom.FROM_PREFILL: ("logits-last-but-one",),
    Symptom.UNRELATED: ("features-text-only",),
}
STEPWISE = ("over-queries", "heads-not-merged", "block-before", "block-twice", *CAPACITIES)


def prefill_mistakes() -> Group:
    """Return the mistakes of the pass over the prompt, the likeliest first."""
    group, last_norm = Group(PREFILL, SIGNS, STEPWISE), wraps(lambda on: [on.core.norm])
    embedding = wraps(lambda on: [on.core.embed_tokens], lambda run, change, ids: change(run(ids)))
    group.rows("features", SCATTERS, _scatters, "front")
    for key, row in EMBEDDED.items():
        group.rows("embeddings", {key: row}, embedding, "front", "the text's embeddings {}")
        group.rows("prompt", {key: row}, _whole, "front", "the whole prompt's embeddings {}")
    add_decoder_attention(group)
    blocks.add_norms(group, "the decoder", 1e-6, (1e-5, 1e-12, 1e-8, 1e-3), are_rms=True)
    blocks.add_linears(group, "the decoder", (), tuple(f"self_attn.{name}_proj" for name in "qkvo"))
    blocks.add_flows(group, "the decoder")
    add_numbers(group, "the decoder")
    add_experts(group)
    for key, (exponential, _) in EXPONENTIALS.items():
        parts = [one for one in group if one.name in (f"softmax-{key}", f"experts-softmax-{key}", f"mlp-{key}")]
        words = f"{exponential} in the decoder's attention, router and perceptrons"
        group.add(f"exp-{key}", words, partial(_together, parts=parts), kind="exp")
    group.rows("", NO_LAST_NORM, last_norm, "back")
    group.rows("last-norm", LAST_NORMS, last_norm, "back")
    epsilons = {f"{eps:g}": Row(f"{eps:g}", eps, is_small=True) for eps in (1e-5, 1e-12, 1e-3)}
    group.rows("last-norm", epsilons, _last_epsilon, "back", "an epsilon of {} in place of 1e-06 in the last norm")
    group.add(
        "last-norm-one-more", "the last norm scaling by one plus its weights", _last_gain, "back", kind="last-norm"
    )
    group.rows("head", HEADS, _head, "back")
    group.rows("logits", PLACES, _from_another, "back")
    group.add("last-layer-left-out", "the decoder's last layer left out", _no_last, "back")
    group.add("values-before", "the values of the layer in front in each layer's cache", _values_before)
    add_rotary(group)
    return group


Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Put features ``[n, C]`` into embeddings ``[S, C]`` at the places ``[n]``."""


def _put(embeds: Tensor, at: Tensor, features: Tensor, part: slice = slice(None)) -> Tensor:
    return embeds.index_copy(0, at[part], features[part])


def _put_changed(embeds: Tensor, at: Tensor, features: Tensor, change: TensorChange) -> Tensor:
    return _put(embeds, at, change(features))


SCATTERS: MistakeTable = {
    "text-only": ("the image tokens' own embeddings in place of vision's features", lambda e, at, f: e),
    "one-late": ("vision's features one place too late", lambda e, at, f: _put(e, (at + 1).clamp_max(len(e) - 1), f)),
    "one-early": ("vision's features one place too early", lambda e, at, f: _put(e, at - 1, f)),
    "from-start": ("vision's features from the prompt's first position on", lambda e, at, f: _put(e, at - at[0], f)),
    "at-end": ("vision's features at the end of the prompt", lambda e, at, f: _put(e, at + len(e) - 1 - at[-1], f)),
    "added": ("vision's features added to the image tokens' embeddings", lambda e, at, f: _put(e, at, f + e[at])),
    "not-last": ("vision's last feature, the separator, left out", lambda e, at, f: _put(e, at, f, slice(len(at) - 1))),
    "not-first": ("vision's first feature left out", lambda e, at, f: _put(e, at, f, slice(1, None))),
    "first-alone": ("vision's first feature at every image token", lambda e, at, f: _put(e, at, f[:1].expand_as(f))),
    "first-only": ("vision's features put at one image token alone", lambda e, at, f: _put(e, at, f, slice(1))),
    "shifted": ("vision's features one off, the last in front", lambda e, at, f: _put(e, at, f.roll(1, 0))),
    "shifted-early": (
        "each of vision's features at the place before its own, the first at the end",
        lambda e, at, f: _put(e, at, f.roll(-1, 0)),
    ),
    "zeros": ("zeros in place of vision's features", lambda e, at, f: _put(e, at, 0 * f)),
    **rounding("vision's features rounded to {}", lambda change: partial(_put_changed, change=change)),
    "scaled": (
        "vision's features multiplied by the root of the width",
        lambda e, at, f: _put(e, at, f * f.shape[-1] ** 0.5),
    ),
}
EMBEDDED: MistakeTable = {
    "scaled": ("multiplied by the root of the width", lambda x: x * x.shape[-1] ** 0.5),
    **rounding("rounded to {}"),
    "normed": ("normed", unit),
    "layer-normed": ("brought to mean 0 and deviation 1", lambda x: F.layer_norm(x, x.shape[-1:])),
}


def _scatters(on: Target, how: Scatter) -> None:
    def scatter(embeds: Tensor, mask: Tensor, features: Tensor, _expected: int) -> Tensor:
        return how(embeds[0], mask[0].nonzero().flatten(), features.to(embeds.dtype))[None]

    on.changes.set(pipeline, "scatter", scatter)


def _together(on: Target, parts: Sequence[Mistake]) -> None:
    for one in parts:
        one.plant(on)


def _whole(on: Target, change: TensorChange) -> None:
    run = on.core.decode
    on.changes.set(on.core, "decode", lambda x, cache: run(change(x), cache))


NO_LAST_NORM: MistakeTable = {"no-last-norm": ("no norm behind the decoder's last layer", lambda run, x: x)}
LAST_NORMS: MistakeTable = {
    "twice": ("the last norm run twice", lambda run, x: run(run(x))),
    "plain": ("the last norm without its weights", lambda run, x: unit(x)),
}
HeadChange = Callable[[Any, TensorChange, Tensor], Tensor]
"""Compute logits from the model, its own head and the hidden states."""


def _head_in(model: Any, run: TensorChange, x: Tensor, dtype: torch.dtype) -> Tensor:
    return linear_in(model.lm_head, dtype, x).float()


def _logits_changed(model: Any, run: TensorChange, x: Tensor, change: TensorChange) -> Tensor:
    return change(run(x))


HEADS: MistakeTable = {
    "tied": (
        "the embeddings in the place of the head's weights (tied)",
        lambda model, run, x: F.linear(x, model.model.embed_tokens.weight).float(),
    ),
    **{key: Row(f"the head computed in {key}", partial(_head_in, dtype=dtype), key) for key, dtype in DTYPES.items()},
    **kin("logits", rounding("logits rounded to {}", lambda change: partial(_logits_changed, change=change))),
    "weights-bfloat16": Row(
        "the head's weights rounded to bfloat16",
        lambda model, run, x: F.linear(x, rounded(model.lm_head.weight, torch.bfloat16)).float(),
        "bfloat16",
    ),
    "scaled": ("logits divided by the root of the width", lambda model, run, x: run(x) / x.shape[-1] ** 0.5),
    "multiplied": ("logits multiplied by the root of the width", lambda model, run, x: run(x) * x.shape[-1] ** 0.5),
    "cap-30": ("logits capped at 30", lambda model, run, x: capped(run(x), 30.0)),
    "cap-50": ("logits capped at 50", lambda model, run, x: capped(run(x), 50.0)),
    "softmax": ("probabilities in the place of logits", lambda model, run, x: run(x).softmax(-1)),
    "log-softmax": ("logarithms of probabilities in the place of logits", lambda model, run, x: run(x).log_softmax(-1)),
    "one-off": ("logits one token off", lambda model, run, x: run(x).roll(1, -1)),
    "one-off-other": ("logits one token too early", lambda model, run, x: run(x).roll(-1, -1)),
}
PLACES: dict[str, tuple[str, Callable[[Target, int], int]]] = {
    "last-but-one": ("the logits behind the prompt's last token but one", lambda on, length: length - 2),
    "first": ("the logits behind the prompt's first token", lambda on, length: 0),
    "image-end": ("the logits behind the last image token", lambda on, length: on.prompt.image[1] - 1),
}


def _last_epsilon(on: Target, eps: float) -> None:
    on.changes.set(on.core.norm, "eps", eps)


def _last_gain(on: Target) -> None:
    on.changes.weight(on.core.norm.weight, on.core.norm.weight.data + 1)


def _head(on: Target, change: HeadChange) -> None:
    on.changes.around(on.model.lm_head, lambda run, x: change(on.model, run, x))


def _from_another(on: Target, at: Callable[[Target, int], int]) -> None:
    model = on.model

    def decode(embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        if cache.length:
            return model.lm_head(model.model.decode(embeds, cache))  # type: ignore[no-any-return]
        hidden = model.model.decode(embeds, cache)
        place = at(on, hidden.shape[1])
        logits: Tensor = model.lm_head(hidden[:, place : place + 1])
        return logits

    on.changes.set(model, "decode", decode)


def _no_last(on: Target) -> None:
    on.changes.set(on.core, "layers", nn.ModuleList(on.all_blocks[:-1]))


def _values_before(on: Target) -> None:
    append, kept = KVCache.append, dict[int, Tensor]()

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        kept[layer] = values
        k, v = append(cache, layer, keys, kept.get(layer - 1, values), positions)
        return k, v

    on.changes.set(KVCache, "append", changed)
