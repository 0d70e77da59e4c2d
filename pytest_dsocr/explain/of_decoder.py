"""What-ifs of the decoder as it reads the prompt: embeddings and attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import decoder, pipeline
from pytest_dsocr.engine.attention import _repeat_heads
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.flows import add_flows
from pytest_dsocr.explain.norms import add_norms
from pytest_dsocr.explain.numbers import DTYPES, add_linears, add_numbers

PREFILL = Family("prefill")
"""The likeliest first."""

Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Puts features ``[n, C]`` at the places ``[n]`` into embeddings ``[S, C]``."""


def _put(embeds: Tensor, at: Tensor, features: Tensor) -> Tensor:
    return embeds.index_copy(0, at, features)


def _partly(embeds: Tensor, at: Tensor, features: Tensor, keep: Callable[[int], slice]) -> Tensor:
    part = keep(len(at))
    return _put(embeds, at[part], features[part])


SCATTERS: dict[str, tuple[str, Scatter]] = {
    "text-only": ("the image tokens' own embeddings in place of vision's features", lambda e, at, f: e),
    "one-late": ("vision's features one place too late", lambda e, at, f: _put(e, (at + 1).clamp_max(len(e) - 1), f)),
    "one-early": ("vision's features one place too early", lambda e, at, f: _put(e, at - 1, f)),
    "from-start": ("vision's features from the prompt's first position on", lambda e, at, f: _put(e, at - at[0], f)),
    "at-end": ("vision's features at the end of the prompt", lambda e, at, f: _put(e, at + len(e) - 1 - at[-1], f)),
    "added": ("vision's features added to the image tokens' embeddings", lambda e, at, f: _put(e, at, f + e[at])),
    "backwards": ("vision's features in the opposite order", lambda e, at, f: _put(e, at, f.flip(0))),
    "not-last": (
        "vision's last feature, the separator, left out",
        lambda e, at, f: _partly(e, at, f, lambda n: slice(n - 1)),
    ),
    "not-first": ("vision's first feature left out", lambda e, at, f: _partly(e, at, f, lambda n: slice(1, n))),
    "first-alone": ("vision's first feature at every image token", lambda e, at, f: _put(e, at, f[:1].expand_as(f))),
    "first-only": (
        "vision's features put at one image token alone",
        lambda e, at, f: _partly(e, at, f, lambda n: slice(1)),
    ),
    "shifted": ("vision's features one off, the last in front", lambda e, at, f: _put(e, at, f.roll(1, 0))),
    "zeros": ("zeros in place of vision's features", lambda e, at, f: _put(e, at, 0 * f)),
    "mean": (
        "the mean of vision's features at every image token",
        lambda e, at, f: _put(e, at, f.mean(0, keepdim=True).expand_as(f)),
    ),
    "bfloat16": ("vision's features rounded to bfloat16", lambda e, at, f: _put(e, at, f.bfloat16().to(e.dtype))),
    "float16": ("vision's features rounded to float16", lambda e, at, f: _put(e, at, f.half().to(e.dtype))),
    "scaled": (
        "vision's features multiplied by the root of the width",
        lambda e, at, f: _put(e, at, f * f.shape[-1] ** 0.5),
    ),
}


def _scatters(on: Bench, how: Scatter) -> None:
    def scatter(embeds: Tensor, mask: Tensor, features: Tensor, _expected: int) -> Tensor:
        places = mask[0].nonzero().flatten()
        return how(embeds[0], places, features.to(embeds.dtype))[None]

    on.changes.set(pipeline, "scatter", scatter)


for _key, (_words, _how) in SCATTERS.items():
    PREFILL.add(f"features-{_key}", _words, partial(_scatters, how=_how), "front")


def _embeddings(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    on.changes.around(on.model.model.embed_tokens, lambda run, ids: change(run(ids)))


def _whole(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    core = on.model.model
    run = core.decode
    on.changes.set(core, "decode", lambda x, cache: run(change(x), cache))


EMBEDDED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "scaled": ("multiplied by the root of the width", lambda x: x * x.shape[-1] ** 0.5),
    "bfloat16": ("rounded to bfloat16", lambda x: x.bfloat16().to(x.dtype)),
    "float16": ("rounded to float16", lambda x: x.half().to(x.dtype)),
    "normed": ("normed", lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    "layer-normed": ("brought to mean 0 and deviation 1", lambda x: F.layer_norm(x, x.shape[-1:])),
    "no-first": ("of zeros at the prompt's first position", lambda x: torch.cat([0 * x[:, :1], x[:, 1:]], 1)),
    "unit": ("made of length one", lambda x: F.normalize(x, dim=-1)),
}
for _key, (_words, _change) in EMBEDDED.items():
    PREFILL.add(f"embeddings-{_key}", f"the text's embeddings {_words}", partial(_embeddings, change=_change), "front")
    PREFILL.add(f"prompt-{_key}", f"the whole prompt's embeddings {_words}", partial(_whole, change=_change), "front")

Hidden = Callable[[Tensor, Tensor, tuple[int, int]], Tensor]
"""Which keys ``[S]`` a query ``[T]`` does not see, and the image's first place and the one behind it."""


def _outside(q: Tensor, k: Tensor, image: tuple[int, int], size: int) -> Tensor:
    return (k > q) | (k <= q - size)


HIDDEN: dict[str, tuple[str, Hidden]] = {
    "no-mask": ("no causal mask", lambda q, k, image: (k < 0) & (q < 0)),
    "strict": ("a causal mask that hides each token from itself", lambda q, k, image: (k >= q) & (k + q > 0)),
    "strict-all": (
        "a causal mask that hides each token from itself, the first one as well",
        lambda q, k, image: k >= q,
    ),
    "one-more": ("a causal mask that shows one token too many", lambda q, k, image: k > q + 1),
    "image-both-ways": (
        "image tokens that see one another in both directions",
        lambda q, k, image: (k > q) & ~((q >= image[0]) & (q < image[1]) & (k < image[1])),
    ),
    "prefix-both-ways": (
        "a prompt that sees itself in both directions up to its image's end",
        lambda q, k, image: (k > q) & (k >= image[1]),
    ),
    "image-hidden": (
        "image tokens hidden from the text behind them",
        lambda q, k, image: (k > q) | ((q >= image[1]) & (k >= image[0]) & (k < image[1])),
    ),
    "first-hidden": ("the prompt's first token hidden", lambda q, k, image: (k > q) | ((k == 0) & (q > 0))),
    "upside-down": ("the causal mask the wrong way round", lambda q, k, image: k < q),
    **{
        f"window-{size}": (f"a sliding window of {size} tokens", partial(_outside, size=size))
        for size in (64, 128, 256, 512, 1024, 4096)
    },
}
Softmax = Callable[[Tensor], Tensor]


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Any,
    *,
    image: tuple[int, int] = (0, 0),
    hidden: Hidden = lambda q, k, image: k > q,
    scale: Callable[[int, int], float] = lambda dim, heads: 1 / math.sqrt(dim),
    softmax: Softmax = lambda s: s.softmax(-1, dtype=torch.float32),
    scores: Softmax = lambda s: s,
    fill: float | None = None,
    repeat: Callable[[Tensor, Tensor], Tensor] = _repeat_heads,
) -> Tensor:
    k, v = repeat(k, q), repeat(v, q)
    found = scores(q @ k.transpose(2, 3) * scale(q.shape[-1], q.shape[1]))
    at = torch.arange(k.shape[2], device=q.device)
    unseen = hidden(at[-q.shape[2] :, None], at[None], image)
    found = found.masked_fill(unseen, torch.finfo(found.dtype).min if fill is None else fill)
    return softmax(found).to(q.dtype) @ v


def _attends(on: Bench, **how: Any) -> None:
    for module in on.modules(decoder.Attention):
        on.changes.set(module, "attend", partial(_attend, image=on.prompt_image, **how))


def capped(scores: Tensor, cap: float) -> Tensor:
    """Press scores softly between ``-cap`` and ``cap``."""
    return cap * torch.tanh(scores / cap)


ATTENDING: dict[str, tuple[str, dict[str, Any]]] = {
    "no-scale": ("scores that are not scaled", {"scale": lambda dim, heads: 1.0}),
    "scale-width": (
        "scores scaled by the root of the whole width",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim * heads)},
    ),
    "scale-twice": ("scores scaled twice", {"scale": lambda dim, heads: 1 / dim}),
    "scale-half": (
        "scores scaled by the root of half of a head's width",
        {"scale": lambda dim, heads: math.sqrt(2 / dim)},
    ),
    "scale-mla": (
        "scores scaled as for heads with a part of their own for positions",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim + dim // 2)},
    ),
    "softmax-bfloat16": ("a softmax in bfloat16", {"softmax": lambda s: s.bfloat16().softmax(-1)}),
    "probabilities-bfloat16": (
        "attention's probabilities rounded to bfloat16",
        {"softmax": lambda s: s.softmax(-1).bfloat16().to(s.dtype)},
    ),
    "scores-bfloat16": (
        "scores rounded to bfloat16",
        {"softmax": lambda s: s.bfloat16().float().softmax(-1)},
    ),
    "softmax-float16": ("a softmax in float16", {"softmax": lambda s: s.clamp_min(-60000).half().softmax(-1)}),
    "cap-50": ("scores capped at 50", {"scores": partial(capped, cap=50.0)}),
    "cap-30": ("scores capped at 30", {"scores": partial(capped, cap=30.0)}),
    "mask-10000": ("a mask of -10000 in place of minus infinity", {"fill": -1e4}),
    "mask-100": ("a mask of -100 in place of minus infinity", {"fill": -100.0}),
    "mask-0": ("a mask of 0 in place of minus infinity", {"fill": 0.0}),
    "softmax-one": (
        "a softmax with one more in its sum",
        {"softmax": lambda s: torch.cat([s, torch.zeros_like(s[..., :1])], -1).softmax(-1)[..., :-1]},
    ),
    "over-queries": ("a softmax over the queries", {"softmax": lambda s: s.softmax(-2)}),
    "heads-tiled": (
        "keys and values repeated head after head for the queries",
        {"repeat": lambda keys, q: keys.repeat(1, q.shape[1] // keys.shape[1], 1, 1)},
    ),
}
for _key, (_words, _hidden) in HIDDEN.items():
    PREFILL.add(_key, f"{_words} in the decoder", partial(_attends, hidden=_hidden))
for _key, (_words, _how_to) in ATTENDING.items():
    PREFILL.add(_key, f"{_words} in the decoder", partial(_attends, **_how_to))


def _attends_in(on: Bench, dtype: torch.dtype) -> None:
    for module in on.modules(decoder.Attention):
        on.changes.set(module, "attend", partial(_rounded_attend, module.attend, dtype))


def _rounded_attend(run: Callable[..., Tensor], dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, n: Any) -> Tensor:
    return run(q.to(dtype), k.to(dtype), v.to(dtype), n).to(q.dtype)


for _key, _dtype in DTYPES.items():
    PREFILL.add(f"attention-{_key}", f"the decoder's attention computed in {_key}", partial(_attends_in, dtype=_dtype))


def _projected(on: Bench, name: str, change: Callable[[Tensor, int], Tensor]) -> None:
    for module in on.modules(decoder.Attention):
        on.changes.around(module.get_submodule(name), lambda run, x, dim=module.head_dim: change(run(x), dim))


def _unit_heads(x: Tensor, dim: int) -> Tensor:
    heads: Tensor = x.unflatten(-1, (-1, dim))
    out: Tensor = (heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-6)).flatten(-2)
    return out


def _qk_norm(on: Bench) -> None:
    for name in ("q_proj", "k_proj"):
        _projected(on, name, _unit_heads)


def _dims_first(x: Tensor, dim: int) -> Tensor:
    out: Tensor = x.unflatten(-1, (dim, -1)).transpose(-1, -2).flatten(-2)
    return out


def _swapped(on: Bench, one: str, other: str) -> None:
    for module in on.modules(decoder.Attention):
        a, b = module.get_submodule(one), module.get_submodule(other)
        a_weight, b_weight = a.weight.data, b.weight.data
        on.changes.weight(a.weight, b_weight)
        on.changes.weight(b.weight, a_weight)


PREFILL.add("qk-norm", "queries and keys normed in the decoder", _qk_norm)
for _one, _other, _words in (
    ("q_proj", "k_proj", "queries and keys"),
    ("k_proj", "v_proj", "keys and values"),
    ("q_proj", "v_proj", "queries and values"),
):
    PREFILL.add(
        f"{_one}-{_other}",
        f"the weights of {_words} exchanged in the decoder",
        partial(_swapped, one=_one, other=_other),
    )
for _one in ("q_proj", "k_proj", "v_proj"):
    PREFILL.add(
        f"dims-first-{_one}",
        f"heads of the decoder's {_one} read as the innermost axis",
        partial(_projected, name=_one, change=_dims_first),
    )


@PREFILL("heads-not-merged", "the decoder's heads not moved back behind the positions")
def _not_merged(on: Bench) -> None:
    for module in on.modules(decoder.Attention):
        run = module.attend
        on.changes.set(module, "attend", lambda *a, run=run: run(*a).reshape(*_turned(run(*a))).transpose(1, 2))


def _turned(out: Tensor) -> tuple[int, ...]:
    return out.shape[0], out.shape[2], out.shape[1], out.shape[3]


add_norms(PREFILL, "the decoder", 1e-6, (1e-5, 1e-12, 1e-8, 1e-3))
add_linears(PREFILL, "the decoder", (), tuple(f"self_attn.{name}_proj" for name in "qkvo"))
add_flows(PREFILL, "the decoder")
add_numbers(PREFILL, "the decoder")
