"""Mistakes of the decoder's perceptrons: the experts, how they are chosen, and what is inside of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import experts
from pytest_dsocr.explain.catalogue.blocks import Change
from pytest_dsocr.explain.mistake import Bench, Group

Chosen = tuple[Tensor, Tensor]
"""The experts of each token ``[T, k]``, and their weights."""
Route = Callable[[Any, Tensor], Chosen]
ROOM = 100


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


def _top(router: Any, weights: Tensor, more: int = 0) -> Chosen:
    """Choose as many as the router does, or some more."""
    weights, chosen = torch.topk(weights, router.experts_per_token + more, dim=-1, sorted=False)
    return chosen, weights


def _usual(router: Any, x: Tensor) -> Chosen:
    return _top(router, _softmax(router, x))


def _weighed(router: Any, x: Tensor, change: Change) -> Chosen:
    chosen, weights = _usual(router, x)
    return chosen, change(weights)


def _places(router: Any, chosen: Tensor) -> Tensor:
    """Count how many tokens up to each one came to each of its experts."""
    return F.one_hot(chosen, len(router.weight)).sum(1).cumsum(0).gather(1, chosen)


def _last_skipped(router: Any, x: Tensor) -> Chosen:
    chosen, weights = _usual(router, x)
    return chosen, weights.masked_fill(chosen == len(router.weight) - 1, 0.0)


def _next(router: Any, x: Tensor) -> Chosen:
    chosen, weights = _usual(router, x)
    return (chosen + 1) % len(router.weight), weights


def _of_room(router: Any, x: Tensor) -> Chosen:
    chosen, weights = _usual(router, x)
    return chosen, weights * (_places(router, chosen) <= ROOM)


def _narrow(router: Any, x: Tensor) -> Tensor:
    return F.linear(x.bfloat16(), router.weight.bfloat16())


ROUTES: dict[str, tuple[str, Route]] = {
    "normalised": (
        "the chosen experts' weights made to sum to one (or a softmax over the chosen alone)",
        lambda r, x: _weighed(r, x, lambda w: w / (w.sum(-1, keepdim=True) + 1e-20)),
    ),
    "sigmoid": ("a sigmoid in place of the softmax over experts", lambda r, x: _top(r, _scores(r, x).sigmoid())),
    "one-fewer": ("one expert fewer for each token", lambda r, x: _top(r, _softmax(r, x), -1)),
    "exchanged": (
        "the chosen experts' weights in another order than the experts",
        lambda r, x: _weighed(r, x, lambda w: w.flip(-1)),
    ),
    "next": ("each expert's next one in its place", _next),
    "bfloat16": ("a router in bfloat16", lambda r, x: _top(r, _narrow(r, x).float().softmax(-1))),
    "weights-bfloat16": (
        "the experts' weights rounded to bfloat16",
        lambda r, x: _weighed(r, x, lambda w: w.bfloat16().float()),
    ),
    "last-skipped": ("the last expert chosen and not run", _last_skipped),
    "router-bfloat16": (
        "a router and its softmax in bfloat16",
        lambda r, x: _top(r, _narrow(r, x).softmax(-1).float()),
    ),
    f"room-{ROOM}": (f"experts that take no more than {ROOM} tokens", _of_room),
    **{
        f"times-{by:g}": (
            f"routed experts multiplied by {by:g}",
            partial(_weighed, change=partial(torch.mul, other=by)),
        )
        for by in (2.5, 16.0)
    },
}


def _gated(module: Any, x: Tensor, act: Change) -> Tensor:
    out: Tensor = module.down_proj(act(module.gate_proj(x)) * module.up_proj(x))
    return out


MLPS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "exchanged": ("gate and up exchanged", lambda m, x: m.down_proj(m.gate_proj(x) * F.silu(m.up_proj(x)))),
    "gelu": ("GELU in place of SiLU", partial(_gated, act=F.gelu)),
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
