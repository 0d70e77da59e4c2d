"""What-ifs of attention in SAM and CLIP, whose queries, keys and values come of one layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.engine import clip, sam
from pytest_dsocr.explain.family import Bench, Family

ATTENTIONS = (sam.Attention, clip.Attention)
Split = Callable[[Tensor, int], Tensor]
"""Makes queries, keys and values ``[3, B, N, P, D]`` of ``[B, P, 3 * C]`` and the number of heads."""


def _in_order(fused: Tensor, heads: int, order: tuple[int, int, int] = (0, 1, 2)) -> Tensor:
    parts: Tensor = fused.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)[list(order)]
    return parts


def _by_head(fused: Tensor, heads: int) -> Tensor:
    parts: Tensor = fused.unflatten(-1, (heads, 3, -1)).permute(3, 0, 2, 1, 4)
    return parts


def _innermost(fused: Tensor, heads: int) -> Tensor:
    parts: Tensor = fused.unflatten(-1, (heads, -1, 3)).permute(4, 0, 2, 1, 3)
    return parts


def _dims_first(fused: Tensor, heads: int) -> Tensor:
    parts: Tensor = fused.unflatten(-1, (3, -1, heads)).permute(2, 0, 4, 1, 3)
    return parts


def _not_moved(fused: Tensor, heads: int) -> Tensor:
    return torch.stack([part.reshape(len(fused), heads, fused.shape[1], -1) for part in fused.chunk(3, -1)])


@dataclass(frozen=True)
class Attending:
    """An attention, as a port may compute it; the defaults are the vendor's."""

    split: Split = _in_order
    heads: Callable[[int], int] = lambda heads: heads
    scale: Callable[[int, int], float] = lambda dim, heads: 1 / math.sqrt(dim)
    """Of a head's channels and the number of heads."""
    hidden: Callable[[Tensor], Tensor] | None = None
    """Which of the positions ``[P, P]`` a query does not see, of their indices."""
    softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1)
    merge: Callable[[Tensor], Tensor] = lambda out: out.transpose(1, 2).flatten(2)
    bias_scaled: bool = False
    """Whether the bias of positions is scaled with the scores, as of a scaled query."""

    def run(self, module: Any, x: Tensor) -> Tensor:
        """Compute ``[B, P, C]`` or ``[B, H, W, C]``."""
        is_sam = isinstance(module, sam.Attention)
        fused = (module.qkv if is_sam else module.qkv_proj)(x.flatten(1, -2))
        heads = self.heads(module.heads)
        q, k, v = self.split(fused, heads)
        scale = self.scale(q.shape[-1], heads)
        scores = q @ k.transpose(-2, -1) * scale
        if is_sam:
            scores = scores + module._position_bias(q * scale if self.bias_scaled else q, *x.shape[1:3])
        if self.hidden is not None:
            scores = scores.masked_fill(self.hidden(torch.arange(scores.shape[-1], device=x.device)), -torch.inf)
        out = self.merge(self.softmax(scores) @ v)
        given: Tensor = (module.proj if is_sam else module.out_proj)(out).view_as(x)
        return given


RIGHT = Attending()
ORDERS = {"kqv": (1, 0, 2), "vkq": (2, 1, 0), "qvk": (0, 2, 1), "kvq": (2, 0, 1), "vqk": (1, 2, 0)}
"""Under the order in which a port takes them for: where queries, keys and values are then read."""
LETTERS = {"q": "queries", "k": "keys", "v": "values"}


def _half(scores: Tensor, dtype: torch.dtype) -> Tensor:
    return scores.to(dtype).softmax(-1).to(scores.dtype)


VARIANTS: dict[str, tuple[str, Attending]] = {
    "by-head": ("queries, keys and values read head by head", replace(RIGHT, split=_by_head)),
    "no-scale": ("scores that are not scaled", replace(RIGHT, scale=lambda dim, heads: 1.0)),
    "scale-width": (
        "scores scaled by the root of the whole width, not of a head's",
        replace(RIGHT, scale=lambda dim, heads: 1 / math.sqrt(dim * heads)),
    ),
    "scale-twice": ("scores scaled twice", replace(RIGHT, scale=lambda dim, heads: 1 / dim)),
    "scale-heads": (
        "scores scaled by the root of the number of heads",
        replace(RIGHT, scale=lambda dim, heads: 1 / math.sqrt(heads)),
    ),
    "scale-times": (
        "scores multiplied by the root of a head's width",
        replace(RIGHT, scale=lambda dim, heads: dim**0.5),
    ),
    "causal": (
        "a causal mask in the attention",
        replace(RIGHT, hidden=lambda at: at[None] > at[:, None]),
    ),
    "reverse-causal": (
        "a causal mask the wrong way round in the attention",
        replace(RIGHT, hidden=lambda at: at[None] < at[:, None]),
    ),
    "not-itself": (
        "a mask that hides each position from itself",
        replace(RIGHT, hidden=lambda at: at[None] == at[:, None]),
    ),
    "first-hidden": (
        "a mask that hides the first position from the others",
        replace(RIGHT, hidden=lambda at: (at[None] == 0) & (at[:, None] > 0)),
    ),
    "last-hidden": (
        "a mask that hides the last position",
        replace(RIGHT, hidden=lambda at: (at[None] == at[-1]).expand(len(at), len(at))),
    ),
    "heads-not-merged": (
        "heads that are not moved back behind the positions",
        replace(RIGHT, merge=lambda out: out.reshape(len(out), out.shape[2], -1)),
    ),
    "dims-merged-first": (
        "heads merged channel by channel",
        replace(RIGHT, merge=lambda out: out.permute(0, 2, 3, 1).flatten(2)),
    ),
    "over-queries": ("a softmax over the queries, not the keys", replace(RIGHT, softmax=lambda s: s.softmax(-2))),
    "softmax-one": (
        "a softmax with one more in its sum",
        replace(RIGHT, softmax=lambda s: torch.cat([s, torch.zeros_like(s[..., :1])], -1).softmax(-1)[..., :-1]),
    ),
    "softmax-bfloat16": ("a softmax in bfloat16", replace(RIGHT, softmax=partial(_half, dtype=torch.bfloat16))),
    "softmax-float16": ("a softmax in float16", replace(RIGHT, softmax=partial(_half, dtype=torch.float16))),
    "transposed-scores": (
        "queries and keys exchanged in the scores",
        replace(RIGHT, split=partial(_in_order, order=(1, 0, 2))),
    ),
    "innermost": ("queries, keys and values read channel by channel", replace(RIGHT, split=_innermost)),
    "dims-first": ("heads read as the innermost axis", replace(RIGHT, split=_dims_first)),
    "heads-not-moved": ("heads that are not moved in front of the positions", replace(RIGHT, split=_not_moved)),
    "heads-double": ("twice as many heads", replace(RIGHT, heads=lambda heads: heads * 2)),
    "heads-half": ("half as many heads", replace(RIGHT, heads=lambda heads: heads // 2)),
    "heads-one": ("one head", replace(RIGHT, heads=lambda heads: 1)),
    "heads-from-width": ("heads of 64 channels, whatever their number is", replace(RIGHT, heads=lambda heads: -64)),
}


def add_attention(family: Family, name: str) -> None:
    """Take what may be wrong with the attention in each block of ``name``."""
    for key, (words, attending) in VARIANTS.items():
        family.add(key, f"{words} in {name}", partial(_attend, attending=attending))
    for letters, order in ORDERS.items():
        words = ", ".join(LETTERS[one] for one in letters)
        changed = replace(RIGHT, split=partial(_in_order, order=order))
        family.add(f"order-{letters}", f"{words} in this order in {name}", partial(_attend, attending=changed))
    for place, letter in enumerate("qkv"):
        family.add(
            f"no-bias-{letter}",
            f"the bias of the {LETTERS[letter]} left out in {name}",
            partial(_part, place=place, change=lambda part: torch.zeros_like(part), of_bias=True),
        )
        family.add(
            f"transposed-{letter}",
            f"the weight of the {LETTERS[letter]} transposed in {name}",
            partial(_part, place=place, change=lambda part: part.T, of_bias=False),
        )


def _attend(on: Bench, attending: Attending) -> None:
    for module in on.modules(*ATTENTIONS):
        on.changes.forward(module, partial(attending.run, module))


def _part(on: Bench, place: int, change: Callable[[Tensor], Tensor], of_bias: bool) -> None:
    for module in on.modules(*ATTENTIONS):
        linear: nn.Linear = module.qkv if isinstance(module, sam.Attention) else module.qkv_proj
        parameter = linear.bias if of_bias else linear.weight
        parts = list(parameter.data.chunk(3))
        parts[place] = change(parts[place])
        on.changes.weight(parameter, torch.cat(parts))
