"""Attention from queries, keys and values, computed in other ways.

Shapes: B views, N heads, P positions, D channels of a head.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.describe.functions import FORMATS, PARTS, Function, rounded

BiasOf = Callable[[Tensor], Tensor | None]
"""Return what is added to the scores, from the queries."""
AttentionCore = Callable[[Tensor, Tensor, Tensor, BiasOf], Tensor]
"""Attend ``[B, N, P, D]``; return ``[B, N, P, D]``."""
CAPS = (20.0, 30.0, 50.0)


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias_of: BiasOf,
    *,
    change: Function | None = None,
    softmax: Function = lambda scores: scores.softmax(-1),
    hidden: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Attend, with a change of the scores, another softmax, or keys that are hidden."""
    scores = (q @ k.mT) * (1 / math.sqrt(q.shape[-1]))
    scores = scores if (bias := bias_of(q)) is None else scores + bias
    scores = scores if change is None else change(scores)
    if hidden is not None:
        at = torch.arange(k.shape[2], device=q.device)
        scores = scores.masked_fill(hidden(at[:, None], at[None]), torch.finfo(scores.dtype).min)
    return softmax(scores).to(v.dtype) @ v


def cores(*, is_causal: bool) -> Iterator[tuple[str, AttentionCore]]:
    """Yield other ways to attend, with words; the simplest come first."""
    for name, dtype in FORMATS.items():
        low = partial(rounded, dtype=dtype)
        yield f"the softmax is computed in {name}", partial(attended, softmax=partial(_softmax_in, dtype))
        yield f"the scores are rounded to {name}", partial(attended, change=low)
        yield f"the probabilities are rounded to {name}", partial(attended, softmax=partial(_rounded_softmax, dtype))
        yield f"the bias of the scores is rounded to {name}", partial(_with_bias, low)
        yield f"queries, keys and values are rounded to {name}", partial(_narrow, dtype, is_whole=False)
        yield f"it is computed in {name}", partial(_narrow, dtype, is_whole=True)
    yield "the softmax has one more in its sum", partial(attended, softmax=_softmax_one)
    yield (
        "the softmax is taken over the queries, not the keys",
        partial(attended, softmax=partial(torch.softmax, dim=-2)),
    )
    yield "the weights of the values are not normalised", partial(attended, softmax=torch.exp)
    yield "the bias of the scores is left out", partial(_with_bias, torch.zeros_like)
    yield "the bias is divided by the root of a head's width too", _scaled_bias
    for cap in CAPS:
        yield f"the scores are capped at {cap:g}", partial(attended, change=partial(_capped, cap))
    if not is_causal:
        yield "each position sees itself and those before it", partial(attended, hidden=lambda q, k: k > q)
        yield "each position sees itself and those after it", partial(attended, hidden=lambda q, k: k < q)
        yield "the first position is hidden from the others", partial(attended, hidden=lambda q, k: (k == 0) & (q > 0))
    for order in permutations(range(3)):
        if order != (0, 1, 2):
            words = ", ".join(PARTS[one] for one in order)
            yield f"its queries, keys and values are the {words}", partial(_ordered, order)
    for factor in (2, 4, 0.5, 0.25):
        yield f"it has {factor:g} times as many heads", partial(_of_heads, factor)
    yield "it has one head", partial(_of_heads, 0)
    yield "heads are not moved in front of the positions", _not_moved


def _softmax_in(dtype: torch.dtype, scores: Tensor) -> Tensor:
    return scores.to(dtype).softmax(-1).to(scores.dtype)


def _rounded_softmax(dtype: torch.dtype, scores: Tensor) -> Tensor:
    return rounded(scores.softmax(-1), dtype)


def _softmax_one(scores: Tensor) -> Tensor:
    return torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1]


def _capped(cap: float, scores: Tensor) -> Tensor:
    return cap * torch.tanh(scores / cap)


def _with_bias(change: Function, q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    return attended(q, k, v, lambda q: None if (bias := bias_of(q)) is None else change(bias))


def _scaled_bias(q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    return _with_bias(lambda bias: bias / math.sqrt(q.shape[-1]), q, k, v, bias_of)


def _narrow(dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf, *, is_whole: bool) -> Tensor:
    to: Any = (lambda x: x.to(dtype)) if is_whole else (lambda x: rounded(x, dtype))
    bias = bias_of(q)
    return attended(to(q), to(k), to(v), lambda _: None if bias is None else to(bias)).to(q.dtype)


def _ordered(order: tuple[int, ...], q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    one, two, three = ((q, k, v)[place] for place in order)
    return attended(one, two, three, bias_of)


def _of_heads(factor: float, q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    heads = max(1, int(q.shape[1] * factor))
    wide = (one.transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2) for one in (q, k, v))
    q_of, k_of, v_of = wide
    out = attended(q_of, k_of, v_of, lambda _: None)
    back: Tensor = out.transpose(1, 2).flatten(2).unflatten(2, (q.shape[1], -1)).transpose(1, 2)
    return back


def _not_moved(q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    q, k, v = (one.transpose(1, 2).reshape(one.shape) for one in (q, k, v))
    return attended(q, k, v, bias_of)
