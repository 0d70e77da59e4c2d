"""Mistakes of the decoder as it reads the prompt: embeddings, attention, rotary positions, the last norm, the head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.engine import decoder, pipeline
from pytest_dsocr.engine.attention import repeat_heads
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.explain.catalogue.blocks import (
    NARROW,
    NOT_FINITE,
    Change,
    add_flows,
    add_linears,
    add_norms,
    add_numbers,
    linear_in,
    rounded,
)
from pytest_dsocr.explain.catalogue.encoders import ATTENDED, attended
from pytest_dsocr.explain.catalogue.experts import add_experts
from pytest_dsocr.explain.mistake import Bench, Group

THETAS = (5e5, 1e6, 1e5, 1e3)
SIGNS = {
    **NOT_FINITE,
    Sign.LATER_ROWS: ("positions-bfloat16", "window-128", "experts-room-100"),
    Sign.FROM_PREFILL: ("logits-last-but-one",),
    Sign.UNRELATED: ("features-text-only",),
}


def prefill_mistakes() -> Group:
    """Make those of the prompt's pass, the likeliest first."""
    group = Group("prefill", SIGNS)
    group.rows("features-", SCATTERS, _scatters, "front")
    for key, (words, change) in EMBEDDED.items():
        group.add(f"embeddings-{key}", f"the text's embeddings {words}", partial(_embeddings, change=change), "front")
        group.add(f"prompt-{key}", f"the whole prompt's embeddings {words}", partial(_whole, change=change), "front")
    group.rows("", HIDDEN, _hides, words="{} in the decoder")
    group.rows("", ATTENDED, _attends, words="{} in the decoder")
    group.rows("attention-", NARROW, _attends_in, words="the decoder's attention computed in {}")
    add_norms(group, "the decoder", 1e-6, 1e-5)
    add_linears(group, "the decoder", (), tuple(f"self_attn.{name}_proj" for name in "qkvo"))
    add_flows(group, "the decoder")
    add_numbers(group, "the decoder")
    add_experts(group)
    group.rows("", LAST_NORMS, _last_norm, "back")
    group.add("last-norm-1e-05", "an epsilon of 1e-05 in place of 1e-06 in the last norm", _last_epsilon, "back")
    group.rows("head-", HEADS, _head, "back")
    group.rows("logits-", PLACES, _from_another, "back")
    group.add("values-before", "the values of the layer in front in each layer's cache", _values_before)
    group.rows("rope-", ROTATIONS, _rotates)
    for side in ("queries", "keys"):
        group.add(f"rope-no-{side}", f"no rotary positions on {side}", partial(_one_side, side=side))
    thetas = {f"{theta:g}": (f"{theta:g}", theta) for theta in THETAS}
    group.rows("theta-", thetas, _theta, words="a rotary base of {} in place of 10000")
    group.rows("positions-", POSITIONS, _positioned)
    return group


Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Puts features ``[n, C]`` at the places ``[n]`` into embeddings ``[S, C]``."""


def _put(embeds: Tensor, at: Tensor, features: Tensor) -> Tensor:
    return embeds.index_copy(0, at, features)


SCATTERS: dict[str, tuple[str, Scatter]] = {
    "text-only": ("the image tokens' own embeddings in place of vision's features", lambda e, at, f: e),
    "one-late": ("vision's features one place too late", lambda e, at, f: _put(e, (at + 1).clamp_max(len(e) - 1), f)),
    "added": ("vision's features added to the image tokens' embeddings", lambda e, at, f: _put(e, at, f + e[at])),
    "shifted": ("vision's features one off, the last in front", lambda e, at, f: _put(e, at, f.roll(1, 0))),
    "scaled": (
        "vision's features multiplied by the root of the width",
        lambda e, at, f: _put(e, at, f * f.shape[-1] ** 0.5),
    ),
}
EMBEDDED: dict[str, tuple[str, Change]] = {
    "scaled": ("multiplied by the root of the width", lambda x: x * x.shape[-1] ** 0.5),
    "normed": ("normed", lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
}


def _scatters(on: Bench, how: Scatter) -> None:
    def scatter(embeds: Tensor, mask: Tensor, features: Tensor, _expected: int) -> Tensor:
        return how(embeds[0], mask[0].nonzero().flatten(), features.to(embeds.dtype))[None]

    on.changes.set(pipeline, "scatter", scatter)


def _embeddings(on: Bench, change: Change) -> None:
    on.changes.around(on.core.embed_tokens, lambda run, ids: change(run(ids)))


def _whole(on: Bench, change: Change) -> None:
    run = on.core.decode
    on.changes.set(on.core, "decode", lambda x, cache: run(change(x), cache))


OfImage = Callable[[Tensor, Tensor, tuple[int, int]], Tensor]
"""Which keys ``[1, S]`` a query ``[T, 1]`` does not see, and the image's first place and the one behind it."""


def _outside(q: Tensor, k: Tensor, image: tuple[int, int], size: int) -> Tensor:
    return (k > q) | (k <= q - size)


HIDDEN: dict[str, tuple[str, OfImage]] = {
    "no-mask": ("no causal mask", lambda q, k, image: (k < 0) & (q < 0)),
    "strict": ("a causal mask that hides each token from itself", lambda q, k, image: (k >= q) & (k + q > 0)),
    "image-both-ways": (
        "image tokens that see one another in both directions",
        lambda q, k, image: (k > q) & ~((q >= image[0]) & (q < image[1]) & (k < image[1])),
    ),
    **{
        f"window-{size}": (f"a sliding window of {size} tokens", partial(_outside, size=size))
        for size in (128, 256, 512, 1024)
    },
}


def _attend(q: Tensor, k: Tensor, v: Tensor, lengths: Any, **how: Any) -> Tensor:
    return attended(q, repeat_heads(k, q), repeat_heads(v, q), **{"hidden": lambda q, k: k > q, **how})


def _attends(on: Bench, how: dict[str, Any]) -> None:
    for module in on.modules(decoder.Attention):
        on.changes.set(module, "attend", partial(_attend, **how))


def _hides(on: Bench, hidden: OfImage) -> None:
    _attends(on, {"hidden": lambda q, k: hidden(q, k, on.prompt_image)})


def _attends_in(on: Bench, dtype: torch.dtype) -> None:
    for module in on.modules(decoder.Attention):
        on.changes.set(module, "attend", partial(_attend_in, module.attend, dtype))


def _attend_in(run: Callable[..., Tensor], dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, n: Any) -> Tensor:
    return run(q.to(dtype), k.to(dtype), v.to(dtype), n).to(q.dtype)


LAST_NORMS: dict[str, tuple[str, Callable[[Change, Tensor], Tensor]]] = {
    "no-last-norm": ("no norm behind the decoder's last layer", lambda run, x: x),
    "last-norm-twice": ("the last norm run twice", lambda run, x: run(run(x))),
}
Head = Callable[[Any, Change, Tensor], Tensor]
"""Computes logits from the model, its own head and the hidden states."""
HEADS: dict[str, tuple[str, Head]] = {
    "tied": (
        "the embeddings in the place of the head's weights (tied)",
        lambda model, run, x: F.linear(x, model.model.embed_tokens.weight).float(),
    ),
    "bfloat16": (
        "the head computed in bfloat16",
        lambda model, run, x: linear_in(model.lm_head, torch.bfloat16, x).float(),
    ),
    "logits-bfloat16": ("logits rounded to bfloat16", lambda model, run, x: rounded(run(x), torch.bfloat16)),
    "cap-30": ("logits capped at 30", lambda model, run, x: 30 * torch.tanh(run(x) / 30)),
}
PLACES: dict[str, tuple[str, Callable[[Bench, int], int]]] = {
    "last-but-one": ("the logits behind the prompt's last token but one", lambda on, length: length - 2),
    "image-end": ("the logits behind the last image token", lambda on, length: on.prompt_image[1] - 1),
}


def _last_norm(on: Bench, change: Callable[..., Tensor]) -> None:
    on.changes.around(on.core.norm, change)


def _last_epsilon(on: Bench) -> None:
    on.changes.set(on.core.norm, "eps", 1e-5)


def _head(on: Bench, change: Head) -> None:
    on.changes.around(on.model.lm_head, lambda run, x: change(on.model, run, x))


def _from_another(on: Bench, at: Callable[[Bench, int], int]) -> None:
    model = on.model

    def decode(embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        hidden = model.model.decode(embeds, cache)
        place = at(on, hidden.shape[1]) if hidden.shape[1] > 1 else 0
        logits: Tensor = model.lm_head(hidden[:, place : place + 1])
        return logits

    on.changes.set(model, "decode", decode)


def _values_before(on: Bench) -> None:
    append, kept = KVCache.append, dict[int, Tensor]()

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        kept[layer] = values
        k, v = append(cache, layer, keys, kept.get(layer - 1, values), positions)
        return k, v

    on.changes.set(KVCache, "append", changed)


Rotate = Callable[[Rope, Tensor], Tensor]


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _interleaved(rope: Rope, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    cos, sin = (part[..., :half].repeat_interleave(2, -1) for part in (rope.cos, rope.sin))
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + turned * sin


ROTATIONS: dict[str, tuple[str, Rotate]] = {
    "interleaved": ("rotary positions that pair neighbouring channels", _interleaved),
    "deinterleaved": (
        "queries and keys brought from pairs into halves in front of the rotary positions",
        lambda rope, x: _turn(x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), rope.cos, rope.sin),
    ),
    "backwards": ("rotary positions turned the other way", lambda rope, x: _turn(x, rope.cos, -rope.sin)),
    "missing": ("no rotary positions", lambda rope, x: x),
    "bfloat16": (
        "cosine and sine rounded to bfloat16",
        lambda rope, x: _turn(x, rounded(rope.cos, torch.bfloat16), rounded(rope.sin, torch.bfloat16)),
    ),
}


def _rotates(on: Bench, rotate: Rotate) -> None:
    on.changes.set(Rope, "rotate", rotate)


def _one_side(on: Bench, side: str) -> None:
    turn, turns = Rope.rotate, [0]

    def rotate(rope: Rope, x: Tensor) -> Tensor:
        turns[0] += 1
        is_query = turns[0] % 2 == 1
        return x if is_query == (side == "queries") else turn(rope, x)

    on.changes.set(Rope, "rotate", rotate)


Positions = Callable[[Bench, Tensor], Tensor]
"""Changes the positions ``[B, T]``."""


def _counted(on: Bench, at: Tensor, in_image: Callable[[Tensor, int], Any], tokens: int) -> Tensor:
    """Count the image as so many tokens, with these positions in it."""
    first, behind = on.prompt_image
    return torch.where(at < first, at, torch.where(at < behind, in_image(at, first), at - (behind - first) + tokens))


POSITIONS: dict[str, tuple[str, Positions]] = {
    "image-shares": (
        "one position for all image tokens",
        partial(_counted, in_image=lambda at, first: first, tokens=1),
    ),
    "text-one-late": ("positions one too high behind the image", lambda on, at: at + (at >= on.prompt_image[1])),
    "text-one-early": ("positions one too low behind the image", lambda on, at: at - (at >= on.prompt_image[1]).long()),
    "bfloat16": ("positions rounded to bfloat16", lambda on, at: at.bfloat16().float()),
    "capped-1024": ("positions that end at 1023", lambda on, at: at.clamp_max(1023)),
}


def _positioned(on: Bench, change: Positions) -> None:
    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        start(rope, frequencies, change(on, positions), dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


def _theta(on: Bench, theta: float) -> None:
    own = on.core.inv_freq
    exponents = torch.arange(len(own), device=own.device).float() / len(own)
    on.changes.set(on.core, "inv_freq", (1.0 / theta**exponents).to(own.dtype))
