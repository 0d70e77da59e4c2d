"""Mistakes of attention: of any, and of the decoder's."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.explain.catalogue.blocks import DTYPES, NARROW, TensorChange, rounded, unit
from pytest_dsocr.explain.catalogue.exponentials import EXPONENTIALS, softmax_of
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, kin, wraps
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.decoder import DecoderAttention

WINDOWS = (64, 128, 256, 512, 1024, 4096)
LETTERS = {"q": "queries", "k": "keys", "v": "values"}


def add_decoder_attention(group: Group) -> None:
    """Add the mistakes of the decoder's attention."""
    around = partial(wraps, inside(DecoderAttention), name="attend")
    group.rows("", HIDDEN, _hides, words="{} in the decoder")
    group.rows("", ATTENDED | ATTENDING, _attends, words="{} in the decoder")
    group.rows("mask", BY_SDPA, around(_by_sdpa))
    group.rows("attention", NARROW, around(_attend_in), words="the decoder's attention computed in {}")
    group.add("qk-norm", "queries and keys normed in the decoder", partial(_projected, names="qk", change=_unit_heads))
    for one, other in ("qk", "kv", "qv"):
        words = f"the weights of {LETTERS[one]} and {LETTERS[other]} exchanged in the decoder"
        group.add(f"{one}_proj-{other}_proj", words, partial(_swapped, one=one, other=other))
    for one in LETTERS:
        words = f"heads of the decoder's {one}_proj read as the innermost axis"
        plant = partial(_projected, names=one, change=_dims_first)
        group.add(f"dims-first-{one}_proj", words, plant, kind="dims-first")
    words = "the decoder's heads not moved back behind the positions"
    group.add("heads-not-merged", words, lambda on: around(_not_merged)(on, None))


Hidden = Callable[[Tensor, Tensor], Tensor]
"""Return the keys hidden from queries, from the positions of queries ``[T, 1]`` and keys ``[1, S]``."""


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | float = 0.0,
    hidden: Hidden | None = None,
    scale: Callable[[int, int], float] = lambda dim, heads: 1 / math.sqrt(dim),
    change: TensorChange = lambda scores: scores,
    fill: float | None = None,
    softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1, dtype=torch.float32),
) -> Tensor:
    """Attend ``[B, N, T, D]`` as a port may do; the defaults are the vendor's.

    Args:
        q: queries.
        k: keys.
        v: values.
        bias: added to the scores.
        hidden: what is not seen; None if everything is seen.
        scale: factor of the scores, from a head's channels and the number of heads.
        change: applied to the scores before the mask.
        fill: the score of what is not seen; None for the lowest number.
        softmax: softmax over the keys.
    """
    scores = change(q @ k.transpose(-2, -1) * scale(q.shape[-1], q.shape[1]) + bias)
    if hidden is not None:
        at = torch.arange(k.shape[2], device=q.device)
        least = torch.finfo(scores.dtype).min if fill is None else fill
        scores = scores.masked_fill(hidden(at[-q.shape[2] :, None], at[None]), least)
    return softmax(scores).to(q.dtype) @ v


def _softmax(dtype: torch.dtype) -> TensorChange:
    return lambda scores: scores.to(dtype).softmax(-1).to(scores.dtype)


ATTENDED: MistakeTable = {
    "no-scale": ("scores that are not scaled", {"scale": lambda dim, heads: 1.0}),
    "scale-width": (
        "scores scaled by the root of the whole width, not of a head's",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim * heads)},
    ),
    "scale-twice": ("scores scaled twice", {"scale": lambda dim, heads: 1 / dim}),
    **{
        f"softmax-{key}": Row(f"a softmax in {key}", {"softmax": _softmax(dtype)}, key) for key, dtype in DTYPES.items()
    },
    **{
        f"softmax-{key}": (f"a softmax with {words}", {"softmax": softmax_of(exp)})
        for key, (words, exp) in EXPONENTIALS.items()
    },
    "softmax-one": Row(
        "a softmax with one more in its sum",
        {"softmax": lambda s: torch.cat([s, torch.zeros_like(s[..., :1])], -1).softmax(-1)[..., :-1]},
        is_small=True,
    ),
    "over-queries": ("a softmax over the queries, not the keys", {"softmax": lambda s: s.softmax(-2)}),
}
"""Mistakes of any attention, as replaced arguments of :func:`attended`."""


OfImage = Callable[[Tensor, Tensor, tuple[int, int]], Tensor]
"""Return the keys hidden from queries ``[T, 1]``, from keys' positions ``[1, S]`` and the image's start and end."""


def _outside(q: Tensor, k: Tensor, image: tuple[int, int], size: int) -> Tensor:
    return (k > q) | (k <= q - size)


def capped(scores: Tensor, cap: float) -> Tensor:
    """Bend scores so that none exceeds a cap."""
    return cap * torch.tanh(scores / cap)


HIDDEN: MistakeTable = {
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
    **kin("window", {f"{n}": (f"a sliding window of {n} tokens", partial(_outside, size=n)) for n in WINDOWS}),
}


ATTENDING: MistakeTable = {
    "scale-half": (
        "scores scaled by the root of half of a head's width",
        {"scale": lambda dim, heads: math.sqrt(2 / dim)},
    ),
    "scale-mla": (
        "scores scaled as for heads with a part of their own for positions",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim + dim // 2)},
    ),
    "probabilities-bfloat16": Row(
        "attention's probabilities rounded to bfloat16",
        {"softmax": lambda s: rounded(s.softmax(-1), torch.bfloat16)},
        "bfloat16",
    ),
    "scores-bfloat16": Row(
        "scores rounded to bfloat16", {"softmax": lambda s: s.bfloat16().float().softmax(-1)}, "bfloat16"
    ),
    **kin("cap", {f"{cap}": (f"scores capped at {cap}", {"change": partial(capped, cap=cap)}) for cap in (50, 30)}),
    **{f"mask-{-n:g}": (f"a mask of {n:g} in place of minus infinity", {"fill": n}) for n in (-10000.0, -100.0)},
    "mask-0": ("a mask of 0 in place of minus infinity", {"fill": 0.0}),
    "heads-tiled": (
        "keys and values repeated head after head for the queries",
        {"repeat": lambda keys, q: keys.repeat(1, q.shape[1] // keys.shape[1], 1, 1)},
    ),
}
"""Mistakes of the decoder's attention, as replaced arguments of :func:`attended`."""


def _attend(
    q: Tensor, k: Tensor, v: Tensor, _: Any, repeat: Callable[..., Tensor] = repeat_heads, **how: Any
) -> Tensor:
    how = {"hidden": lambda q, k: k > q, **how}
    if 1 < q.shape[2] < k.shape[2]:  # several steps in one pass: none sees later tokens
        hidden = how["hidden"]
        how |= {"hidden": lambda q, k: hidden(q, k) | (k > q), "fill": None}
    return attended(q, repeat(k, q), repeat(v, q), **how)


def _attends(on: Target, how: dict[str, Any]) -> None:
    for module in on.modules(DecoderAttention):
        on.changes.set(module, "attend", partial(_attend, **how))


def _hides(on: Target, hidden: OfImage) -> None:
    _attends(on, {"hidden": lambda q, k: hidden(q, k, on.prompt.image)})


BY_SDPA: dict[str, tuple[str, TensorChange]] = {
    "inverted": ("SDPA given a mask that is True where a token is hidden", torch.logical_not),
    "of-ones": ("SDPA given a mask of ones and zeros, which it adds to the scores", Tensor.float),
}
AnyAttention = Callable[..., Tensor]


def _by_sdpa(run: AnyAttention, mask: TensorChange, q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
    if q.shape[2] != k.shape[2]:
        return run(q, k, v, lengths)  # a step needs no mask
    made = mask(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril())
    made = made if made.dtype == torch.bool else made.to(q.dtype)
    return F.scaled_dot_product_attention(q, repeat_heads(k, q), repeat_heads(v, q), attn_mask=made)


def _attend_in(run: AnyAttention, dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
    return run(q.to(dtype), k.to(dtype), v.to(dtype), lengths).to(q.dtype)


def _not_merged(run: AnyAttention, _: None, *given: Any) -> Tensor:
    out = run(*given)
    return out.reshape(len(out), out.shape[2], out.shape[1], -1).transpose(1, 2)


def _projected(on: Target, names: str, change: Callable[[Tensor, int], Tensor]) -> None:
    for module in on.modules(DecoderAttention):
        for linear in (module.get_submodule(f"{name}_proj") for name in names):
            on.changes.around(linear, lambda run, x, dim=module.head_dim: change(run(x), dim))


def _unit_heads(x: Tensor, dim: int) -> Tensor:
    return unit(x.unflatten(-1, (-1, dim))).flatten(-2)


def _dims_first(x: Tensor, dim: int) -> Tensor:
    out: Tensor = x.unflatten(-1, (dim, -1)).transpose(-1, -2).flatten(-2)
    return out


def _swapped(on: Target, one: str, other: str) -> None:
    for module in on.modules(DecoderAttention):
        a, b = (module.get_submodule(f"{name}_proj").weight for name in (one, other))
        a_values, b_values = a.data, b.data
        on.changes.weight(a, b_values)
        on.changes.weight(b, a_values)
