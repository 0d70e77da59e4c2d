"""Mistakes of the decoder's perceptrons: choice, weights and inside of the experts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.explain.catalogue.blocks import TensorChange
from pytest_dsocr.explain.catalogue.exponentials import EXPONENTIALS, silu_of, softmax_of
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, runs, wraps
from pytest_dsocr.layers import experts
from pytest_dsocr.layers.activations import quick_gelu

RoutedExperts = tuple[Tensor, Tensor]
"""Experts of each token ``[T, k]``, and their weights."""


def add_experts(group: Group) -> None:
    """Add the mistakes of the experts to the decoder's."""
    routes = runs(inside(experts.Router), lambda router, how, x: _routed(router, x, **how))
    group.rows("experts", ROUTES, routes)
    group.rows("", SHARED, wraps(_shared_experts, lambda run, factor, x: factor * run(x)))
    group.rows("", {"no-routed": ("no routed experts", {"weigh": torch.zeros_like})}, routes)
    group.rows("mlp", MLPS, runs(inside(experts.GatedMlp)), words="{} in the decoder's perceptrons")


def _shared_experts(on: Target) -> list[Any]:
    return [one.shared_experts for one in on.modules(experts.MixtureOfExperts)]


SHARED: dict[str, tuple[str, float]] = {
    "no-shared": ("no shared experts", 0),
    "shared-halved": ("shared experts averaged, not added", 0.5),
    "shared-twice": ("shared experts added twice", 2),
}


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(-1)


def _same(value: Tensor) -> Tensor:
    return value


def _routed(
    router: Any,
    x: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scores: TensorChange = Tensor.float,
    shares: TensorChange = _softmax,
    first: int = 0,
    last: int | None = None,
    more: int = 0,
    most: int = 1000,
    largest: bool = True,
    weigh: TensorChange = _same,
    places: Callable[[Any, RoutedExperts], RoutedExperts] = lambda router, chosen: chosen,
) -> RoutedExperts:
    """Choose the experts of tokens ``[T, C]`` as a port may do; the defaults are the vendor's.

    Args:
        router: router of the model.
        x: the tokens.
        dtype: dtype of the linear layer.
        scores: computes scores from the linear layer's output.
        shares: computes the experts' shares from their scores.
        first: first expert that may be chosen.
        last: end of the experts that may be chosen.
        more: number of additional experts for each token.
        most: largest number of experts for each token.
        largest: whether the experts with the largest shares are chosen.
        weigh: computes weights ``[T, k]`` from the shares of the chosen experts.
        places: changes the final choice.
    """
    logits = F.linear(x.to(dtype), router.weight.to(dtype))
    found = shares(scores(logits))[:, first:last].float()
    count = min(router.experts_per_token + more, most, len(router.weight))
    weights, chosen = torch.topk(found, count, dim=-1, largest=largest, sorted=False)
    return places(router, (chosen + first, weigh(weights)))


def _brief(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def _to_one(weights: Tensor) -> Tensor:
    return weights / (weights.sum(-1, keepdim=True) + 1e-20)


def _last_skipped(router: Any, found: RoutedExperts) -> RoutedExperts:
    chosen, weights = found
    return chosen, weights.masked_fill(chosen == len(router.weight) - 1, 0.0)


def _beside(router: Any, found: RoutedExperts, by: int) -> RoutedExperts:
    return (found[0] + by) % len(router.weight), found[1]


def _of_capacity(router: Any, found: RoutedExperts, share: float = 0.0, room: int = 0) -> RoutedExperts:
    """Drop the tokens that exceed an expert's capacity."""
    chosen, weights = found
    came = F.one_hot(chosen, len(router.weight)).sum(1).cumsum(0).gather(1, chosen)
    return chosen, weights * (came <= (room or int(share * chosen.numel() / len(router.weight))))


NORMALISED = "the chosen experts' weights made to sum to one (or a softmax over the chosen alone)"
SIGMOID = "a sigmoid in place of the softmax over experts"
TIMES = (2.5, 16.0, 2.0, 0.5)
SHARES = (1.0, 1.25, 1.5, 2.0)
CAPACITIES = (*(f"experts-capacity-{n:g}" for n in SHARES), "experts-room-100")
"""Names of the mistakes that limit the tokens of an expert."""
ROUTES: MistakeTable = {
    "normalised": (NORMALISED, {"weigh": _to_one}),
    "sigmoid": (SIGMOID, {"shares": torch.sigmoid}),
    "sigmoid-normalised": (f"{SIGMOID}, made to sum to one", {"shares": torch.sigmoid, "weigh": _to_one}),
    "one-fewer": ("one expert fewer for each token", {"more": -1}),
    "one-more": ("one expert more for each token", {"more": 1}),
    "one": ("one expert for each token", {"most": 1}),
    "all": ("all experts for each token", {"more": 1000}),
    "equal": ("equal weights for the chosen experts", {"weigh": lambda w: torch.full_like(w, 1 / w.shape[-1])}),
    "ones": ("the chosen experts added without weights", {"weigh": torch.ones_like}),
    "logits": ("the router's scores as weights, without a softmax", {"shares": _same}),
    "exchanged": ("the chosen experts' weights in another order than the experts", {"weigh": lambda w: w.flip(-1)}),
    "least": ("the experts of the lowest scores", {"largest": False}),
    "next": ("each expert's next one in its place", {"places": partial(_beside, by=1)}),
    "before": ("the expert in front of each in its place", {"places": partial(_beside, by=-1)}),
    "bfloat16": Row("a router in bfloat16", {"dtype": torch.bfloat16}, "bfloat16"),
    "float16": Row("a router in float16", {"dtype": torch.float16}, "float16"),
    "weights-bfloat16": Row("the experts' weights rounded to bfloat16", {"weigh": _brief}, "bfloat16"),
    "scores-bfloat16": Row("the router's scores rounded to bfloat16", {"scores": _brief}, "bfloat16"),
    "softmax-bfloat16": Row("a softmax over experts in bfloat16", {"scores": Tensor.bfloat16}, "bfloat16"),
    "last-never": ("the last expert never chosen", {"last": -1}),
    "last-skipped": ("the last expert chosen and not run", {"places": _last_skipped}),
    "last-hidden": ("the last expert hidden in front of the softmax", {"scores": lambda scores: scores[:, :-1]}),
    "router-bfloat16": Row(
        "a router and its softmax in bfloat16", {"dtype": torch.bfloat16, "scores": _same}, "bfloat16"
    ),
    "first-never": ("the first expert never chosen", {"first": 1}),
    **{
        f"capacity-{n:g}": (
            f"experts of a capacity of {n:g} times their mean share",
            {"places": partial(_of_capacity, share=n)},
        )
        for n in SHARES
    },
    "room-100": ("experts that take no more than 100 tokens", {"places": partial(_of_capacity, room=100)}),
    **{
        f"softmax-{key}": (f"a softmax over experts with {words}", {"shares": softmax_of(exp)})
        for key, (words, exp) in EXPONENTIALS.items()
    },
    "squared": ("the experts' weights applied twice", {"weigh": torch.square}),
    **{f"times-{n:g}": (f"routed experts multiplied by {n:g}", {"weigh": partial(torch.mul, other=n)}) for n in TIMES},
}
"""Mistakes of routing, as arguments of :func:`_routed`."""


def _gated(module: Any, x: Tensor, act: TensorChange) -> Tensor:
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
    **{key: (f"SiLU with {words}", partial(_gated, act=silu_of(exp))) for key, (words, exp) in EXPONENTIALS.items()},
    "quick": ("the quick GELU in place of SiLU", partial(_gated, act=quick_gelu)),
    "no-gate": ("no gate", lambda m, x: m.down_proj(m.up_proj(x))),
    "no-up": ("the gate alone", lambda m, x: m.down_proj(F.silu(m.gate_proj(x)))),
    "behind": ("SiLU of the product of gate and up", lambda m, x: m.down_proj(F.silu(m.gate_proj(x) * m.up_proj(x)))),
    "capped": (
        "gate and up capped at 7",
        lambda m, x: m.down_proj(F.silu(m.gate_proj(x).clamp(max=7)) * m.up_proj(x).clamp(-7, 7)),
    ),
}
