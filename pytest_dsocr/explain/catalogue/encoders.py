"""Mistakes of attention, and those that both encoders of images may have in it and in tables that are resized."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import clip, sam
from pytest_dsocr.engine.sam import resize_grid, resize_line
from pytest_dsocr.explain.mistake import Bench, Group

ATTENTIONS = (sam.Attention, clip.Attention)
Hidden = Callable[[Tensor, Tensor], Tensor]
"""Which keys ``[1, S]`` a query ``[T, 1]`` does not see, of their places."""


def attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | float = 0.0,
    hidden: Hidden | None = None,
    scale: Callable[[int, int], float] = lambda dim, heads: 1 / math.sqrt(dim),
    softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1, dtype=torch.float32),
) -> Tensor:
    """Attend ``[B, N, T, D]`` as a port may do; the defaults are the vendor's.

    Args:
        q: queries.
        k: keys.
        v: values.
        bias: is added to the scores.
        hidden: what is not seen; None where everything is.
        scale: of a head's channels and the number of heads.
        softmax: over the keys.
    """
    scores = q @ k.transpose(-2, -1) * scale(q.shape[-1], q.shape[1]) + bias
    if hidden is not None:
        at = torch.arange(k.shape[2], device=q.device)
        scores = scores.masked_fill(hidden(at[-q.shape[2] :, None], at[None]), torch.finfo(scores.dtype).min)
    return softmax(scores).to(q.dtype) @ v


ATTENDED: dict[str, tuple[str, dict[str, Any]]] = {
    "no-scale": ("scores that are not scaled", {"scale": lambda dim, heads: 1.0}),
    "scale-width": (
        "scores scaled by the root of the whole width, not of a head's",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim * heads)},
    ),
    "scale-twice": ("scores scaled twice", {"scale": lambda dim, heads: 1 / dim}),
    "softmax-bfloat16": ("a softmax in bfloat16", {"softmax": lambda s: s.bfloat16().softmax(-1).to(s.dtype)}),
}
"""Of any attention, what is other than in :func:`attended`."""


def _split(fused: Tensor, heads: int, *, sizes: str = "3nd", order: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    """Make queries, keys and values ``[3, B, N, P, D]`` of ``[B, P, 3 * C]``, whose last axis ``sizes`` names."""
    widths = {"3": 3, "n": heads, "d": -1}
    parts = fused.unflatten(-1, tuple(widths[one] for one in sizes))  # [B, P, *sizes]
    axes = (2 + sizes.index("3"), 0, 2 + sizes.index("n"), 1, 2 + sizes.index("d"))
    out: Tensor = parts.permute(axes)[list(order)]
    return out


def _run(module: Any, split: Callable[[Tensor, int], Tensor], how: dict[str, Any], x: Tensor) -> Tensor:
    """Compute an encoder's attention of ``[B, P, C]`` or ``[B, H, W, C]``."""
    is_sam = isinstance(module, sam.Attention)
    q, k, v = split((module.qkv if is_sam else module.qkv_proj)(x.flatten(1, -2)), module.heads)
    bias = module.position_bias(q, *x.shape[1:3]) if is_sam else 0.0
    merged = attended(q, k, v, bias=bias, **how).transpose(1, 2).flatten(2)
    out: Tensor = (module.proj if is_sam else module.out_proj)(merged)
    return out.view_as(x)


LETTERS = {"q": "queries", "k": "keys", "v": "values"}
ORDERS = {"kqv": (1, 0, 2), "vkq": (2, 1, 0), "qvk": (0, 2, 1), "kvq": (2, 0, 1), "vqk": (1, 2, 0)}
"""By the order in which a port takes them: where queries, keys and values are then read."""


def add_attention(group: Group, name: str) -> None:
    """Add what may be wrong with the attention in each block of ``name``."""
    by_head = {"by-head": ("queries, keys and values read head by head", partial(_split, sizes="n3d"))}
    group.rows("", by_head, _splits, words=f"{{}} in {name}")
    hidden: Hidden = lambda q, k: k > q  # noqa: E731
    changes = {**ATTENDED, "causal": ("a causal mask in the attention", {"hidden": hidden})}
    group.rows("", changes, _attends, words=f"{{}} in {name}")
    orders = {
        letters: (", ".join(LETTERS[one] for one in letters), partial(_split, order=order))
        for letters, order in ORDERS.items()
    }
    group.rows("order-", orders, _splits, words=f"{{}} in this order in {name}")


def _splits(on: Bench, split: Callable[[Tensor, int], Tensor]) -> None:
    for module in on.modules(*ATTENTIONS):
        on.changes.forward(module, partial(_run, module, split, {}))


def _attends(on: Bench, how: dict[str, Any]) -> None:
    for module in on.modules(*ATTENTIONS):
        on.changes.forward(module, partial(_run, module, _split, how))


Resize = Callable[[Tensor, int], Tensor]
"""Makes of a table another of this size, or side."""


def _unless_equal(resize: Resize) -> Resize:
    return lambda table, size: table if len(table) == size else resize(table, size)


def _planes(**how: Any) -> Resize:
    def resize(table: Tensor, size: int) -> Tensor:
        planes = table.float().permute(2, 0, 1)[None]
        return F.interpolate(planes, size=(size, size), **how)[0].permute(1, 2, 0).to(table.dtype)

    return _unless_equal(resize)


def _cut(table: Tensor, size: int) -> Tensor:
    cut = table[:size, :size]
    return cut if len(cut) == size else table.repeat(2, 2, 1)[:size, :size]


def _beyond(table: Tensor, size: int, places: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Take rows and columns for a view larger than the table by ``places``, and else resize as is right."""
    at = places(torch.arange(size), len(table))
    return table[at][:, at] if size > len(table) else resize_grid(table, size)


def grid_variants() -> Iterator[tuple[str, str, Resize]]:
    """Yield a name, what is done to a square table in words, and the function that does it."""
    for mode, antialias, corners in ((m, a, c) for m in ("bicubic", "bilinear") for a in (False, True) for c in (0, 1)):
        if (mode, antialias, corners) == ("bicubic", True, 0):
            continue
        words = f"{mode}, {'with' if antialias else 'without'} antialias{', corners aligned' if corners else ''}"
        resize = _planes(mode=mode, antialias=antialias, align_corners=bool(corners))
        yield f"{mode}-{int(antialias)}{corners}", f"resized {words}", resize
    yield "nearest", "resized by nearest", _planes(mode="nearest")
    yield "cut-front", "cut to its first rows and columns, not resized", _unless_equal(_cut)
    yield "turned", "with rows and columns exchanged", lambda table, size: resize_grid(table, size).transpose(0, 1)
    yield "missing", "left out", lambda table, size: 0 * resize_grid(table, size)
    edge = partial(_beyond, places=lambda at, side: at.clamp(max=side - 1))
    yield "edge", "of larger views repeated at the edge, not resized", edge
    anew = partial(_beyond, places=lambda at, side: at % side)
    yield "anew", "of larger views taken anew from the first row, not resized", anew


def line_variants() -> Iterator[tuple[str, str, Resize]]:
    """Yield what may be done to a table of relative positions ``[L, C]`` that has another length."""
    yield "corners", "resized linearly with corners aligned", _line(mode="linear", align_corners=True)
    yield "nearest", "resized by nearest", _line(mode="nearest")
    yield "asymmetric", "resized linearly without half-pixel centres", _unless_equal(_asymmetric)
    yield "middle", "cut to its middle, not resized", lambda table, length: table[(len(table) - length) // 2 :][:length]
    yield "clamped", "clamped for larger views, not resized", _clamped


def _line(**how: Any) -> Resize:
    def resize(table: Tensor, length: int) -> Tensor:
        return F.interpolate(table.float().T[None], size=length, **how)[0].T.to(table.dtype)

    return _unless_equal(resize)


def _clamped(table: Tensor, length: int) -> Tensor:
    at = torch.arange(length) - length // 2 + len(table) // 2
    return table[at.clamp(0, len(table) - 1)] if length > len(table) else resize_line(table, length)


def _asymmetric(table: Tensor, length: int) -> Tensor:
    at = torch.arange(length, device=table.device) * (len(table) / length)
    below = at.long().clamp_max(len(table) - 1)
    share = (at - below)[:, None]
    above = (below + 1).clamp_max(len(table) - 1)
    return (table.float()[below] * (1 - share) + table.float()[above] * share).to(table.dtype)
