"""What-ifs of the decoder's perceptrons: the experts, how they are chosen, and what is inside of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import experts
from pytest_dsocr.explain.family import Bench
from pytest_dsocr.explain.of_decoder import PREFILL

Route = Callable[[Any, Tensor], tuple[Tensor, Tensor]]


def _scores(router: Any, x: Tensor) -> Tensor:
    return F.linear(x.float(), router.weight.float())


def _chosen(scores: Tensor, count: int, **how: Any) -> tuple[Tensor, Tensor]:
    weights, chosen = torch.topk(scores, count, dim=-1, sorted=False, **how)
    return chosen, weights


def _normalised(found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    chosen, weights = found
    return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20)


def _times(found: tuple[Tensor, Tensor], by: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    return found[0], by(found[1])


def _usual(router: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return _chosen(_scores(router, x).softmax(-1), router.experts_per_token)


def _next_expert(found: tuple[Tensor, Tensor], count: int, by: int) -> tuple[Tensor, Tensor]:
    return (found[0] + by) % count, found[1]


def _of_capacity(router: Any, x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Drop what comes to an expert behind as many tokens as it has room for."""
    chosen, weights = _usual(router, x)
    experts = router.weight.shape[0]
    room = int(share * chosen.numel() / experts)
    taken = F.one_hot(chosen, experts).sum(1).cumsum(0).gather(1, chosen)
    return chosen, weights * (taken <= room)


def _multiplied(router: Any, x: Tensor, by: float) -> tuple[Tensor, Tensor]:
    return _times(_usual(router, x), lambda weights: weights * by)


ROUTES: dict[str, tuple[str, Route]] = {
    "normalised": (
        "the chosen experts' weights made to sum to one (or a softmax over the chosen alone)",
        lambda r, x: _normalised(_usual(r, x)),
    ),
    "sigmoid": (
        "a sigmoid in place of the softmax over experts",
        lambda r, x: _chosen(_scores(r, x).sigmoid(), r.experts_per_token),
    ),
    "sigmoid-normalised": (
        "a sigmoid in place of the softmax over experts, made to sum to one",
        lambda r, x: _normalised(_chosen(_scores(r, x).sigmoid(), r.experts_per_token)),
    ),
    "one-fewer": (
        "one expert fewer for each token",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token - 1),
    ),
    "one-more": (
        "one expert more for each token",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token + 1),
    ),
    "one": ("one expert for each token", lambda r, x: _chosen(_scores(r, x).softmax(-1), 1)),
    "all": ("all experts for each token", lambda r, x: _chosen(_scores(r, x).softmax(-1), r.weight.shape[0])),
    "equal": (
        "equal weights for the chosen experts",
        lambda r, x: _times(_usual(r, x), lambda w: torch.full_like(w, 1 / w.shape[-1])),
    ),
    "ones": ("the chosen experts added without weights", lambda r, x: _times(_usual(r, x), torch.ones_like)),
    "logits": (
        "the router's scores as weights, without a softmax",
        lambda r, x: _chosen(_scores(r, x), r.experts_per_token),
    ),
    "exchanged": (
        "the chosen experts' weights in another order than the experts",
        lambda r, x: _times(_usual(r, x), lambda w: w.flip(-1)),
    ),
    "least": (
        "the experts of the lowest scores",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token, largest=False),
    ),
    "next": ("each expert's next one in its place", lambda r, x: _next_expert(_usual(r, x), r.weight.shape[0], 1)),
    "before": (
        "the expert in front of each in its place",
        lambda r, x: _next_expert(_usual(r, x), r.weight.shape[0], -1),
    ),
    "reversed": (
        "experts counted from the end",
        lambda r, x: (r.weight.shape[0] - 1 - _usual(r, x)[0], _usual(r, x)[1]),
    ),
    "bfloat16": (
        "a router in bfloat16",
        lambda r, x: _chosen(F.linear(x.bfloat16(), r.weight.bfloat16()).float().softmax(-1), r.experts_per_token),
    ),
    "float16": (
        "a router in float16",
        lambda r, x: _chosen(F.linear(x.half(), r.weight.half()).float().softmax(-1), r.experts_per_token),
    ),
    "weights-bfloat16": (
        "the experts' weights rounded to bfloat16",
        lambda r, x: _times(_usual(r, x), lambda w: w.bfloat16().float()),
    ),
    "scores-bfloat16": (
        "the router's scores rounded to bfloat16",
        lambda r, x: _chosen(_scores(r, x).bfloat16().float().softmax(-1), r.experts_per_token),
    ),
    "softmax-bfloat16": (
        "a softmax over experts in bfloat16",
        lambda r, x: _chosen(_scores(r, x).bfloat16().softmax(-1).float(), r.experts_per_token),
    ),
    "last-never": (
        "the last expert never chosen",
        lambda r, x: _chosen(_scores(r, x).softmax(-1)[:, :-1], r.experts_per_token),
    ),
    "last-hidden": (
        "the last expert hidden in front of the softmax",
        lambda r, x: _chosen(_scores(r, x)[:, :-1].softmax(-1), r.experts_per_token),
    ),
    "router-bfloat16": (
        "a router and its softmax in bfloat16",
        lambda r, x: _chosen(F.linear(x.bfloat16(), r.weight.bfloat16()).softmax(-1).float(), r.experts_per_token),
    ),
    "first-never": (
        "the first expert never chosen",
        lambda r, x: (
            _chosen(_scores(r, x).softmax(-1)[:, 1:], r.experts_per_token)[0] + 1,
            _chosen(_scores(r, x).softmax(-1)[:, 1:], r.experts_per_token)[1],
        ),
    ),
    **{
        f"capacity-{share:g}": (
            f"experts of a capacity of {share:g} times their mean share",
            partial(_of_capacity, share=share),
        )
        for share in (1.0, 1.25, 1.5, 2.0)
    },
    "squared": ("the experts' weights applied twice", lambda r, x: _times(_usual(r, x), torch.square)),
    **{
        f"times-{by:g}": (f"routed experts multiplied by {by:g}", partial(_multiplied, by=by))
        for by in (2.5, 16.0, 2.0, 0.5)
    },
}


def _routes(on: Bench, route: Route) -> None:
    for router in on.modules(experts.Router):
        on.changes.forward(router, partial(route, router))


def _shared(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    for mixture in on.modules(experts.MixtureOfExperts):
        on.changes.around(mixture.shared_experts, lambda run, x: change(run(x)))


def _mlp(on: Bench, run: Callable[[Any, Tensor], Tensor]) -> None:
    for mlp in on.modules(experts.Mlp):
        on.changes.forward(mlp, partial(run, mlp))


for _key, (_words, _route) in ROUTES.items():
    PREFILL.add(f"experts-{_key}", _words, partial(_routes, route=_route))
PREFILL.add("no-shared", "no shared experts", partial(_shared, change=lambda x: 0 * x))
PREFILL.add("shared-halved", "shared experts averaged, not added", partial(_shared, change=lambda x: x / 2))
PREFILL.add("shared-twice", "shared experts added twice", partial(_shared, change=lambda x: 2 * x))
PREFILL.add(
    "no-routed", "no routed experts", partial(_routes, route=lambda r, x: _times(_usual(r, x), lambda w: 0 * w))
)
MLPS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "exchanged": ("gate and up exchanged", lambda m, x: m.down_proj(m.gate_proj(x) * F.silu(m.up_proj(x)))),
    "gelu": ("GELU in place of SiLU", lambda m, x: m.down_proj(F.gelu(m.gate_proj(x)) * m.up_proj(x))),
    "gelu-tanh": (
        "the GELU approximated by tanh in place of SiLU",
        lambda m, x: m.down_proj(F.gelu(m.gate_proj(x), approximate="tanh") * m.up_proj(x)),
    ),
    "relu": ("ReLU in place of SiLU", lambda m, x: m.down_proj(F.relu(m.gate_proj(x)) * m.up_proj(x))),
    "sigmoid": ("a sigmoid in place of SiLU", lambda m, x: m.down_proj(m.gate_proj(x).sigmoid() * m.up_proj(x))),
    "quick": (
        "the quick GELU in place of SiLU",
        lambda m, x: m.down_proj((g := m.gate_proj(x)) * torch.sigmoid(1.702 * g) * m.up_proj(x)),
    ),
    "no-gate": ("no gate", lambda m, x: m.down_proj(m.up_proj(x))),
    "no-up": ("the gate alone", lambda m, x: m.down_proj(F.silu(m.gate_proj(x)))),
    "behind": ("SiLU of the product of gate and up", lambda m, x: m.down_proj(F.silu(m.gate_proj(x) * m.up_proj(x)))),
    "capped": (
        "gate and up capped at 7",
        lambda m, x: m.down_proj(F.silu(m.gate_proj(x).clamp(max=7)) * m.up_proj(x).clamp(-7, 7)),
    ),
}
for _key, (_words, _run) in MLPS.items():
    PREFILL.add(f"mlp-{_key}", f"{_words} in the decoder's perceptrons", partial(_mlp, run=_run))
