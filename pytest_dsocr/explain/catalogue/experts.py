"""Mistakes of the decoder's perceptrons: the experts, how they are chosen, and what is inside of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import experts
from pytest_dsocr.engine.clip import quick_gelu
from pytest_dsocr.explain.catalogue.blocks import Change
from pytest_dsocr.explain.mistake import Bench, Group

Chosen = tuple[Tensor, Tensor]
"""The experts of each token ``[T, k]``, and their weights."""
Route = Callable[[Any, Tensor], Chosen]


def add_experts(group: Group) -> None:
    """Add those of the experts to those of the decoder."""
    group.rows("experts-", ROUTES, _routes)
    shared = {"no-shared": ("no shared experts", 0), "shared-halved": ("shared experts averaged, not added", 0.5)}
    group.rows("", {**shared, "shared-twice": ("shared experts added twice", 2)}, _shared)
    group.add("no-routed", "no routed experts", partial(_routes, route=lambda r, x: _weighed(r, x, lambda w: 0 * w)))
    group.rows("mlp-", MLPS, _mlp, words="{} in the decoder's perceptrons")


def _scores(router: Any, x: Tensor) -> Tensor:
    return F.linear(x.float(), router.weight.float())


def _softmax(router: Any, x: Tensor) -> Tensor:
    return _scores(router, x).softmax(-1)


def _top(router: Any, weights: Tensor, more: int = 0, **how: Any) -> Chosen:
    """Choose as many as the router does, or some more."""
    weights, chosen = torch.topk(weights, router.experts_per_token + more, dim=-1, sorted=False, **how)
    return chosen, weights


def _usual(router: Any, x: Tensor) -> Chosen:
    return _top(router, _softmax(router, x))


def _normalised(found: Chosen) -> Chosen:
    return found[0], found[1] / (found[1].sum(-1, keepdim=True) + 1e-20)


def _weighed(router: Any, x: Tensor, change: Change) -> Chosen:
    chosen, weights = _usual(router, x)
    return chosen, change(weights)


def _places(router: Any, chosen: Tensor) -> Tensor:
    """Count how many tokens up to each one came to each of its experts."""
    return F.one_hot(chosen, len(router.weight)).sum(1).cumsum(0).gather(1, chosen)


def _last_skipped(router: Any, x: Tensor) -> Chosen:
    chosen, weights = _usual(router, x)
    return chosen, weights.masked_fill(chosen == len(router.weight) - 1, 0.0)


def _beside(router: Any, x: Tensor, by: int) -> Chosen:
    chosen, weights = _usual(router, x)
    return (chosen + by) % len(router.weight), weights


def _of_capacity(router: Any, x: Tensor, share: float = 0.0, room: int = 0) -> Chosen:
    """Drop what comes to an expert behind as many tokens as it has room for."""
    chosen, weights = _usual(router, x)
    room = room or int(share * chosen.numel() / len(router.weight))
    return chosen, weights * (_places(router, chosen) <= room)


def _narrow(router: Any, x: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return F.linear(x.to(dtype), router.weight.to(dtype))


ROUTES: dict[str, tuple[str, Route]] = {
    "normalised": (
        "the chosen experts' weights made to sum to one (or a softmax over the chosen alone)",
        lambda r, x: _normalised(_usual(r, x)),
    ),
    "sigmoid": ("a sigmoid in place of the softmax over experts", lambda r, x: _top(r, _scores(r, x).sigmoid())),
    "sigmoid-normalised": (
        "a sigmoid in place of the softmax over experts, made to sum to one",
        lambda r, x: _normalised(_top(r, _scores(r, x).sigmoid())),
    ),
    "one-fewer": ("one expert fewer for each token", lambda r, x: _top(r, _softmax(r, x), -1)),
    "one-more": ("one expert more for each token", lambda r, x: _top(r, _softmax(r, x), 1)),
    "one": ("one expert for each token", lambda r, x: _top(r, _softmax(r, x), 1 - r.experts_per_token)),
    "all": (
        "all experts for each token",
        lambda r, x: _top(r, _softmax(r, x), len(r.weight) - r.experts_per_token),
    ),
    "equal": (
        "equal weights for the chosen experts",
        lambda r, x: _weighed(r, x, lambda w: torch.full_like(w, 1 / w.shape[-1])),
    ),
    "ones": ("the chosen experts added without weights", lambda r, x: _weighed(r, x, torch.ones_like)),
    "logits": ("the router's scores as weights, without a softmax", lambda r, x: _top(r, _scores(r, x))),
    "exchanged": (
        "the chosen experts' weights in another order than the experts",
        lambda r, x: _weighed(r, x, lambda w: w.flip(-1)),
    ),
    "least": ("the experts of the lowest scores", lambda r, x: _top(r, _softmax(r, x), largest=False)),
    "next": ("each expert's next one in its place", partial(_beside, by=1)),
    "before": ("the expert in front of each in its place", partial(_beside, by=-1)),
    "bfloat16": ("a router in bfloat16", lambda r, x: _top(r, _narrow(r, x).float().softmax(-1))),
    "float16": ("a router in float16", lambda r, x: _top(r, _narrow(r, x, torch.float16).float().softmax(-1))),
    "weights-bfloat16": (
        "the experts' weights rounded to bfloat16",
        lambda r, x: _weighed(r, x, lambda w: w.bfloat16().float()),
    ),
    "scores-bfloat16": (
        "the router's scores rounded to bfloat16",
        lambda r, x: _top(r, _scores(r, x).bfloat16().float().softmax(-1)),
    ),
    "softmax-bfloat16": (
        "a softmax over experts in bfloat16",
        lambda r, x: _top(r, _scores(r, x).bfloat16().softmax(-1).float()),
    ),
    "last-never": ("the last expert never chosen", lambda r, x: _top(r, _softmax(r, x)[:, :-1])),
    "last-skipped": ("the last expert chosen and not run", _last_skipped),
    "last-hidden": (
        "the last expert hidden in front of the softmax",
        lambda r, x: _top(r, _scores(r, x)[:, :-1].softmax(-1)),
    ),
    "router-bfloat16": (
        "a router and its softmax in bfloat16",
        lambda r, x: _top(r, _narrow(r, x).softmax(-1).float()),
    ),
    "first-never": (
        "the first expert never chosen",
        lambda r, x: ((found := _top(r, _softmax(r, x)[:, 1:]))[0] + 1, found[1]),
    ),
    **{
        f"capacity-{share:g}": (
            f"experts of a capacity of {share:g} times their mean share",
            partial(_of_capacity, share=share),
        )
        for share in (1.0, 1.25, 1.5, 2.0)
    },
    "room-100": ("experts that take no more than 100 tokens", partial(_of_capacity, room=100)),
    "squared": ("the experts' weights applied twice", lambda r, x: _weighed(r, x, torch.square)),
    **{
        f"times-{by:g}": (
            f"routed experts multiplied by {by:g}",
            partial(_weighed, change=partial(torch.mul, other=by)),
        )
        for by in (2.5, 16.0, 2.0, 0.5)
    },
}


def _gated(module: Any, x: Tensor, act: Change) -> Tensor:
    out: Tensor = module.down_proj(act(module.gate_proj(x)) * module.up_proj(x))
    return out


MLPS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "exchanged": ("gate and up exchanged", lambda m, x: m.down_proj(m.gate_proj(x) * F.silu(m.up_proj(x)))),
    "gelu": ("GELU in place of SiLU", partial(_gated, act=F.gelu)),
    "gelu-tanh": (
        "the GELU approximated by tanh in place of SiLU",
        partial(_gated, act=partial(F.gelu, approximate="tanh")),
    ),
    "relu": ("ReLU in place of SiLU", partial(_gated, act=F.relu)),
    "sigmoid": ("a sigmoid in place of SiLU", partial(_gated, act=torch.sigmoid)),
    "quick": ("the quick GELU in place of SiLU", partial(_gated, act=quick_gelu)),
    "no-gate": ("no gate", lambda m, x: m.down_proj(m.up_proj(x))),
    "no-up": ("the gate alone", lambda m, x: m.down_proj(F.silu(m.gate_proj(x)))),
    "behind": ("SiLU of the product of gate and up", lambda m, x: m.down_proj(F.silu(m.gate_proj(x) * m.up_proj(x)))),
    "capped": (
        "gate and up capped at 7",
        lambda m, x: m.down_proj(F.silu(m.gate_proj(x).clamp(max=7)) * m.up_proj(x).clamp(-7, 7)),
    ),
}


def _routes(on: Bench, route: Route) -> None:
    for router in on.modules(experts.Router):
        on.changes.forward(router, partial(route, router))


def _shared(on: Bench, factor: float) -> None:
    for mixture in on.modules(experts.MixtureOfExperts):
        on.changes.around(mixture.shared_experts, lambda run, x: factor * run(x))


def _mlp(on: Bench, run: Callable[[Any, Tensor], Tensor]) -> None:
    for mlp in on.modules(experts.Mlp):
        on.changes.forward(mlp, partial(run, mlp))
